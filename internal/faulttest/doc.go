// Package faulttest drives the whole provider against machines that fail, one named fault after the other, and holds what a
// person is told then against texts that were reviewed as prose. It must never contain anything but tests.
//
// Every test run goes through a slice of the catalogue, -faults.all (and make prove) through the whole of it. What can go
// wrong with a cluster on its way up, a reboot and a removal, and the headings in testdata/told.txt that tell of it:
//
//	Bootstrap answers OK, and etcd fails         etcd-bootstrap-fails; etcd-bootstrap-fails, of the machine
//	reboot hangs                                 reboot-hangs; reboot-hangs, of another that waits
//	leave fails, hangs                           etcd-leave-fails, etcd-leave-hangs
//	leave succeeds, an error is answered         nothing: the members tell, and it goes on (part Leave)
//	leave succeeds after the client gave up      etcd-leave-late
//	reset answers OK and never begins            reset-locked
//	reset reboots un-wiped                       reset-fatal, platform-config
//	wipe fails after the API stopped             wipe-fails
//	reset hangs, and a reboot cancels it         reset-hangs, a reboot that cancels a reset
//	machine does not come back from its reset    boot-hangs
//	no leader, sick voters                       etcd-stopped on one of four, etcd-stopped on two of four
//	member lists disagree                        etcd-members-differ
//	learner that is stuck, never started         etcd-no-promote, etcd-join-interrupted
//	voter that no machine runs                   a voter that no machine runs
//	alarm                                        etcd has raised an alarm
//	removed member that keeps flapping           nothing: it is reset (part Dead)
//	one hostname for two machines                duplicate-hostname; duplicate-hostname, of the other one; duplicate-hostname, in a removal
//	one machine for two objects                  the address of another machine, duplicate-uuid
//	address changed                              an address that the machine has no more
//	clock behind the client certificate          clock-far-behind; nothing below an hour (clock-behind)
//	time never synchronises                      time-unsynced
//	fingerprint change in maintenance            fingerprint-change
//	configuration cannot be stored               apply-fails
//	proxied call that lags                       nothing: no call is proxied (promisesWereKept)
//	TLS to the wrong cluster                     other-cluster
//	API accepts TCP and never answers            api-blackhole, a control plane is silent
//	API refuses connections                      api-down, a machine that has left and is silent
//	workload API down before, in, after a drain  the Kubernetes API is down before a drain, … after a drain, … after a reset
//	owner of the endpoint is the victim          the Kubernetes API went with the machine
//	budget never allows, bare pods, emptyDir     a PodDisruptionBudget that never allows, a bare pod, a pod with an emptyDir
//	pods that ignore SIGTERM                     a pod that does not end
//	volumes that never detach                    a volume that is never detached
//	Node gone                                    nothing: there is nothing to drain (stage reset-locked)
//	Node named otherwise                         a Node of an earlier name
//	machine dead for good                        a machine that is dead, with policy RemoveMember
//	the provider's own pod on the victim         nothing: it is evicted, and the next one goes on (OwnPodOnTheVictim in accidents)
package faulttest
