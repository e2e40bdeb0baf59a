// Package etcdmember is the etcd service of one simulated machine: a real embedded etcd with the life cycle that Talos puts
// around it. It must never import anything of the product, whose opinions it is there to test.
//
// What Start does depends on the data directory alone, as in Talos:
//
//	empty ─► Preparing: join loop (remove members of the same name, add itself as a learner) ─► Running ─► promotion
//	empty ─► Preparing ─► Bootstrap ─► Running as the only member of a new cluster
//	data  ─► Running, whatever the cluster thinks of it: a member that was removed keeps exiting and being started again
//
// What is faithful: membership, elections, quorum, learners, strict reconfiguration checks, mutual TLS, snapshots and all errors
// that etcd makes, since it is etcd; and Talos's waits, retries, texts and gaps around it. What is not: nothing is synced to disk,
// and neither etcd's election timing nor the five seconds after which it counts a peer as connected scale with Options.Scale.
package etcdmember
