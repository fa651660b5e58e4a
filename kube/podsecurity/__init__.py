"""The Pod Security Standards, as ``k8s.io/pod-security-admission`` judges by them."""
