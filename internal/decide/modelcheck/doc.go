// Package modelcheck explores every order of events of small clusters, with the product's own decisions, and holds each move
// against the invariants of design.md 7. It must never decide anything itself: what a pass does is what removal.Next,
// configchange.Next and bootstrap.Next say about the facts that can be seen. All of it but the result is tests.
//
//	world ──facts──▶ decide/* ──verdict──▶ pass ──permit, proof, mark, lock read again──▶ one effect ──▶ world
//	  ▲                                     │ killed, paused, out of date at any arrow
//	  └── settle, heal ── faults, requests ─┴─ what a person does who reads the text of a refusal
//
// A world (world_test.go) is one comparable value: for each control plane its object, its hardware, the members of etcd that
// it ever was and its Node; the Lease; what two replicas are in the middle of; and what may still go wrong or be asked for.
// Moves (events_test.go, passes_test.go, help_test.go) are:
//
//   - product: a replica takes the lock and looks, and then carries out what was decided, one effect at a time. The order of
//     these is the controller's and act's, the rules of the lock are clusterlock's, written down here once more (TestLock holds
//     them against those);
//   - settle: a leave that was sent takes effect, or ends; a reset wipes; a machine boots, joins as a learner, is promoted;
//     a voter that lags catches up; five minutes pass and the lock expires;
//   - heal: what is down, silent or at another address comes back, unless it died for good;
//   - fault: a process is killed or paused anywhere; a machine goes down, dies, comes back with its old data, is wiped by
//     hand or loses its address to a stranger or to another machine; its etcd stops; its status is lost; a leave fails; a
//     reset is refused with OK or ends in a boot with the disk as it was; a voter does not learn of a removal; a clock judges
//     the lock wrongly; the Lease is deleted by hand;
//   - ask: deletions, allowed or not, two at a time; a configuration that needs a reboot; approvals; another declared count;
//     a removal called off; the deletion of the whole cluster;
//   - help: only where nothing moves by itself, a person does what the text of the wait or refusal names, and nothing else.
//
// A dawn (bootstrap_test.go) is a cluster whose etcd is not begun yet. Talos has in memory that it is to begin one, and forgets
// that with a boot; a second call stops the etcd of the first, which is not started again in this boot if it has data by then. An
// answer may be lost, or what is written down of it, and a management cluster be restored that knows of no answer, or of one in a
// boot that is over. One that has lost the record of the machine as well is not in it: nobody knows then who was sent Bootstrap.
//
// That the end can be reached from every world by moves that are nobody's fault is checked backwards over the whole graph. So
// a state that only kubectl edit gets out of is found, unless its own text says so. One end is only named: etcd that has
// lost its quorum for good, whose text says to restore it.
//
// Worlds that differ only in the order of their machines, or in the names of the two replicas, are one (symmetry_test.go);
// TestSymmetry holds the product against that. A fault that comes between a look and its call is nobody's act: a voter that
// was up at the look counts as up, one that could not be asked is not one that was asked. What takes longer than a permit
// lives (a boot, a join, an expiry) makes a pass out of date.
//
// Not in the model: workers (they have no member; the lock and the steps are the same), volumes and holds (waits before the
// point of no return, like a drain that does not end), budgets that never allow an eviction, alarms, reads of one survey that
// are of different moments, a process that is paused for one to four minutes right between the proof of a UUID and its call,
// etcd's own refusal to lose a quorum (the model's etcd obeys, so that only our gate keeps it), and which of several moves
// is due first: all that can happen may.
package modelcheck
