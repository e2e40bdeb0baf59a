package faulttest

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/simulator"
)

// reboots are two changes of configuration that need a reboot, the first of which hangs. The second must wait for it: nobody can
// tell when a machine that hangs goes away.
func reboots(w *world) {
	before := w.now()
	w.fault("w-1", true, simulator.FaultRebootHangs)
	w.needReboot("w-1")
	w.tells(simulator.FaultRebootHangs, "w-1", v1alpha1.TypeConfigApplied, v1alpha1.ReasonRebooting, "power-cycle it")
	w.needReboot("cp-2")
	w.tells("reboot-hangs, of another that waits", "cp-2", v1alpha1.TypeConfigApplied, v1alpha1.ReasonWaitingForLock, "w-1")
	w.lockedFor("w-1")
	w.sentTimes(before, "w-1", "Reboot", 1)
	w.sentTimes(before, "cp-2", "Reboot", 0)

	w.fault("w-1", false, simulator.FaultRebootHangs)
	w.powerCycle("w-1")
	for _, name := range []string{"w-1", "cp-2"} {
		w.reconfigured(name)
		w.sentTimes(before, name, "Reboot", 1)
	}
}

// needReboot declares what Talos cannot change while it runs.
func (w *world) needReboot(name string) {
	w.t.Helper()
	w.change(name, func(m *v1alpha1.TalosMachine) {
		m.Spec.ForProvider.ConfigPatches = []v1alpha1.ConfigPatch{{Inline: "machine:\n  env:\n    LIGHT: \"on\""}}
	})
}

// lockedFor waits until the cluster tells that its lock is held for the reboot of a machine.
func (w *world) lockedFor(name string) {
	w.t.Helper()
	w.eventually("the lock is held for "+name, func(ctx context.Context) error {
		c, err := w.cluster(ctx)
		if d := c.Status.AtProvider.Disruption; err == nil && (d == nil || d.Holder != "TalosMachine/"+name) {
			return fmt.Errorf("the disruption is %+v", d)
		}
		return err
	})
}

// reconfigured waits until a machine runs what is declared, and nothing is left of its reboot.
func (w *world) reconfigured(name string) {
	w.t.Helper()
	w.eventually(name+" runs what is declared", func(ctx context.Context) error {
		m, err := w.machine(ctx, name)
		if err != nil {
			return err
		}
		if c := m.GetCondition(v1alpha1.TypeConfigApplied); c.Status != corev1.ConditionTrue {
			return fmt.Errorf("it is %s: %s", c.Reason, c.Message)
		}
		node, err := w.kubernetes().CoreV1().Nodes().Get(ctx, hostname(name), metav1.GetOptions{})
		if err == nil && node.Spec.Unschedulable {
			return fmt.Errorf("its Node is cordoned")
		}
		return err
	})
	w.ready(name)
}
