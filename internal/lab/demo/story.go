package demo

// story is the main job. It begins with blank machines and ends with blank machines.
func (d *Demo) story() []chapter {
	return []chapter{
		{name: "bringup", base: true, checks: []check{
			{"five blank machines answer in maintenance mode", d.blankMachines},
			{"nothing is sent to a machine that is not approved", d.nothingBeforeApproval},
			{"once approved, three voters start, and Bootstrap is sent exactly once", d.comesUp},
			{"kubectl lists every Node as Ready, with the kubeconfig of the connection Secret", d.nodesReady},
			{"no key material is in any object but the two Secrets meant for it, nor in the provider's log", d.noSecrets},
		}},
		{name: "config", checks: []check{
			{"a change that needs no reboot is applied without one, as the machine itself tells", d.changeWithoutReboot},
			{"a change that needs a reboot drains, reboots and verifies one machine at a time, under the lock", d.changeWithReboot},
		}},
		{name: "refusal", checks: []check{
			{"the delete of a control plane that nobody allowed is refused", d.deleteNotAllowed},
			{"with permission, at three of three, it is refused with the way out", d.deleteBelowCount},
			{"a worker is drained, reset and gone", d.removeWorker},
		}},
		{name: "replace", checks: []check{
			{"a fourth control plane joins, and the cluster is in transition", d.fourthJoins},
			{"a pod under a PodDisruptionBudget holds the removal of the second one up; both are named", d.budgetBlocks},
			{"released, the removal goes on: out of etcd, reset, blank, Node gone, object gone", d.budgetReleased},
		}},
		{name: "crash", checks: []check{
			{"another control plane joins, on a machine that is blank", d.anotherJoins},
			{"the provider is killed right after a leave from etcd; the next one finishes the removal", d.killedAfterLeave},
		}},
		{name: "two", checks: []check{
			{"another control plane joins, on a machine that is blank", d.anotherJoins},
			{"of two control planes deleted at once one goes; the other says why it stays and what to do", d.twoAtOnce},
		}},
		{name: "silence", checks: []check{
			{"of a machine that stops answering nothing is forgotten, and its finalizer stays", d.silent},
			{"as soon as it answers again, its removal goes on to its end", d.answersAgain},
		}},
		{name: "end", base: true, checks: []check{
			{"etcd never had fewer healthy voters than its quorum, as counted from outside", d.quorumHeld},
			{"still no key material is anywhere but where it belongs", d.noSecrets},
			{"the cluster is deleted: every machine ends blank, and nothing remains", d.teardown},
		}},
	}
}
