// Package simulator simulates Talos machines: each has a loopback address of its own, serves the Talos API on port 50000, keeps
// disks over reboots and resets, and can be told to misbehave. It must never import the product's decide, survey or act: it
// knows Talos, and shares no opinion about what is safe to do with one.
//
// A Fleet holds Machines. A Machine is hardware: power, disks (disks.go), faults (faults.go). While it is on, it runs one
// system after another (system.go), each from one boot to the next, with a boot ID, resources, events and services that are
// lost with it. What happens in a boot happens in sequences (sequencer.go), and every call passes one interceptor (api.go) that
// records it in the fleet's RPCLog, whether it is answered, forwarded or refused.
//
//	power on -> initialize -> (maintenance mode, until a configuration comes) -> install -> reboot -> initialize -> boot -> running
//
// What is faithful, and what is not:
//
//	area            as on Talos                                                  not as on Talos
//	TLS             TLS 1.3, mutual, exact key usage, roles from the certificate, no trustd port: workers get certificates within
//	                maintenance mode with a per-boot certificate                 the process, from a control plane with their token
//	authorisation   the table of 1.13, impersonation, access policy of resources
//	forwarding      node and nodes, merged replies, errors as messages           names resolve by discovery only, not by DNS
//	resources       real COSI server, all types and namespaces, real watches     only those are filled that tell of the machine, its
//	                                                                             disks, network, cluster, node and etcd
//	configuration   machinery's own loader and validation, all modes, try,       a configuration changes what the resources, API, node
//	                dry run, delayed writing, read back byte for byte            and etcd show; nothing else listens to it
//	sequences       one lock, takeovers, events in order, fatal errors           tasks of a phase run one by one
//	reset           checks and texts, order of phases, API gone before the wipe  the drain evicts with an administrator's rights
//	upgrade         both ways, staged, A/B entries, automatic and asked rollback images are names: whatever has a version as tag exists
//	etcd            real embedded members, and Talos around them: etcdmember     nothing is synced; elections, and what etcd counts as connected, do not scale
//	Kubernetes      real API server, see package workload                        nodes and pods are played
//	discovery       per cluster ID, TTL of 30 minutes, gone at once on reset     a registry within the process
//	versions        1.13; 1.12's maintenance server and missing services         1.14
//	encryption, user volumes, extensions, KubeSpan, SideroLink, logs, containers: not simulated; their calls are Unimplemented
//
// Time: Options.Scale divides every wait of Talos's. What the protocols themselves need (TLS, gRPC, etcd's elections) is not scaled.
package simulator
