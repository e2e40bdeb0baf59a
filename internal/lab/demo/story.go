package demo

import "github.com/maesh/provider-ichor/internal/lab/story"

// story is the main job. It begins with blank machines and ends with blank machines.
func (d *Demo) story() []chapter {
	return []chapter{
		{name: "bringup", base: true, checks: []story.Check{
			{Says: "five blank machines answer in maintenance mode", Hold: d.blankMachines},
			{Says: "nothing is sent to a machine that is not approved", Hold: d.nothingBeforeApproval},
			{Says: "once approved, three voters start, and Bootstrap is sent exactly once", Hold: d.comesUp},
			{Says: "kubectl lists every Node as Ready, with the kubeconfig of the connection Secret", Hold: d.nodesReady},
			{Says: "no key material is in any object but the two Secrets meant for it, nor in the provider's log", Hold: d.noSecrets},
		}},
		{name: "config", checks: []story.Check{
			{Says: "a change that needs no reboot is applied without one, as the machine itself tells", Hold: d.changeWithoutReboot},
			{Says: "a change that needs a reboot drains, reboots and verifies one machine at a time, under the lock", Hold: d.changeWithReboot},
		}},
		{name: "refusal", checks: []story.Check{
			{Says: "the delete of a control plane that nobody allowed is refused", Hold: d.deleteNotAllowed},
			{Says: "with permission, at three of three, it is refused with the way out", Hold: d.deleteBelowCount},
			{Says: "a worker is drained, reset and gone", Hold: d.removeWorker},
		}},
		{name: "replace", checks: []story.Check{
			{Says: "a fourth control plane joins, and the cluster is in transition", Hold: d.fourthJoins},
			{Says: "a pod under a PodDisruptionBudget holds the removal of the second one up; both are named", Hold: d.budgetBlocks},
			{Says: "released, the removal goes on: out of etcd, reset, blank, Node gone, object gone", Hold: d.budgetReleased},
		}},
		{name: "crash", checks: []story.Check{
			{Says: "another control plane joins, on a machine that is blank", Hold: d.anotherJoins},
			{Says: "the provider is killed right after a leave from etcd; the next one finishes the removal", Hold: d.killedAfterLeave},
		}},
		{name: "two", checks: []story.Check{
			{Says: "another control plane joins, on a machine that is blank", Hold: d.anotherJoins},
			{Says: "of two control planes deleted at once one goes; the other says why it stays and what to do", Hold: d.twoAtOnce},
		}},
		{name: "silence", checks: []story.Check{
			{Says: "of a machine that stops answering nothing is forgotten, and its finalizer stays", Hold: d.silent},
			{Says: "as soon as it answers again, its removal goes on to its end", Hold: d.answersAgain},
		}},
		{name: "end", base: true, checks: []story.Check{
			{Says: "etcd never had fewer healthy voters than its quorum, as counted from outside", Hold: d.quorumHeld},
			{Says: "still no key material is anywhere but where it belongs", Hold: d.noSecrets},
			{Says: "the cluster is deleted: every machine ends blank, and nothing remains", Hold: d.teardown},
		}},
	}
}
