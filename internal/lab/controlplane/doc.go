// Package controlplane starts and stops the processes of a Kubernetes control plane on this machine's loopback addresses:
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler, each the real program.
//
// Start gives a whole one, in a few seconds, for tests and the lab. The parts can also be had one by one, for a cluster
// whose etcd or certificates come from somewhere else. Every child ends with this process, however this process ends.
// Nothing here is hardened or durable (etcd does not even sync its disk), so it must never listen on an address that
// another machine can reach; it refuses to.
package controlplane
