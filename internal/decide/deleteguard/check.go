package deleteguard

import "github.com/maesh/provider-ichor/internal/decide/facts"

// CheckEtcd refuses to take the target's member out of etcd unless etcd itself says, with one voice, that it goes on
// serving without it.
func CheckEtcd(f facts.Cluster, t facts.MachineID) *Refusal { return judge(f, t, false, removal) }

// CheckRemoval is everything that is asked before a machine is removed: which machine it is, what objects say, what etcd
// says, and whether another one is out of service. It is asked under the lock, and by whoever wants to know beforehand. In a teardown of the whole cluster all
// but the identity stands aside.
func CheckRemoval(f facts.Cluster, t facts.MachineID) *Refusal {
	chain := []func(facts.Cluster, facts.MachineID) *Refusal{CheckIdentity, CheckAdmission, CheckEtcd, CheckCordons}
	if f.Teardown {
		chain = chain[:1]
	}
	for _, check := range chain {
		if r := check(f, t); r != nil {
			return r
		}
	}
	return nil
}

// CheckReboot is everything that is asked before a machine is rebooted: which machine it is, and whether etcd goes on
// serving while this member is down. It comes back, so it counts as a voter meanwhile. No other may be out of service.
func CheckReboot(f facts.Cluster, t facts.MachineID) *Refusal {
	if r := CheckIdentity(f, t); r != nil {
		return r
	}
	if r := judge(f, t, true, reboot); r != nil {
		return r
	}
	return CheckCordons(f, t)
}

// CheckTeardown refuses to take the target's member out of an etcd that serves and would not serve without it, while the
// whole cluster is being taken down: etcd itself would refuse it after minutes. Permission and counts stand aside.
func CheckTeardown(f facts.Cluster, t facts.MachineID) *Refusal { return judge(f, t, false, teardown) }
