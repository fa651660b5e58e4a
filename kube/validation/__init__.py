"""Whether an object is acceptable, as kube-apiserver judges it: every cause at once, in its words."""
