// Package workload is the Kubernetes of one simulated Talos cluster: a real kube-apiserver, kube-controller-manager and
// kube-scheduler over the etcd members of the simulated control planes, and a stand-in for the machines' kubelets.
//
// What is real: the API with its admission, RBAC and certificates of the cluster's own authorities; scheduling,
// PodDisruptionBudgets, evictions, garbage collection, and nodes that become NotReady when their kubelet is silent. What is
// not: there are no containers, so a pod is Running as soon as its kubelet sees it, and one API server stands for those of
// all control planes. It must never delete a Node object (Talos does not), nor know anything about the product under test.
package workload
