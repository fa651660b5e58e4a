"""The plug-ins of kube-apiserver: what every Kubernetes cluster refuses, completes and counts."""
