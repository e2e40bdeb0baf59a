package act

import (
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/maesh/provider-ichor/internal/decide/configchange"
	"github.com/maesh/provider-ichor/internal/decide/removal"
)

// nodeDoors are doors to a Kubernetes API and to no machine.
type nodeDoors struct{ api kubernetes.Interface }

func (d nodeDoors) Machine(string) Machine { return nil }

func (d nodeDoors) Kubernetes() (kubernetes.Interface, error) { return d.api, nil }

// A step that reaches the Node by mistake does nothing to it, although its permit is good.
func TestOnlyStepsOfNodesTouchNodes(t *testing.T) {
	a, api, l := newTestActor(t), fake.NewClientset(node("node-1", uuid, false, "")), &ledger{}
	j := Job{Lock: &fakeLock{ledger: l}, Doors: nodeDoors{api}}

	remove := removal.Act{Step: removal.LeaveEtcd, Permit: grant(removal.LeaveEtcd.String())}
	if err := a.onNode(t.Context(), j, target, remove); err == nil {
		t.Error("onNode(...) carried a step out that is none of a Node")
	}
	reboot := configchange.Act{Step: configchange.Reboot, Permit: grant(configchange.Reboot.String())}
	if err := a.reconfigureNode(t.Context(), j, target, reboot); err == nil {
		t.Error("reconfigureNode(...) carried a step out that is none of a Node")
	}
	if actions := api.Actions(); len(actions) > 0 || len(l.calls) > 0 {
		t.Errorf("the API was asked %v, and %v was called", actions, l.calls)
	}
}
