"""Admission policies and webhooks as Kubernetes means them: which requests they are about, and what they say of one."""
