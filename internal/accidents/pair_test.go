package accidents

import (
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// fromThreeToOne: somebody wants one control plane where there were three. The second removal is refused, everything else is
// parked, and what they say is the way out: the machine is let go of and leaves by hand. Whatever waited goes on by itself.
func (w *world) fromThreeToOne(s *transcript) {
	c, m := &v1alpha1.TalosCluster{}, &v1alpha1.TalosMachine{}
	w.change(c, ns, cluster, func() { c.Spec.ForProvider.ControlPlane.Count = 1 })
	w.change(m, ns, "cp-3", func() { meta.AddAnnotations(m, map[string]string{v1alpha1.AnnotationAllowDelete: "true"}) })
	w.must(w.Delete(w.ctx, m))
	w.awaitGone(m, ns, "cp-3")

	o, voters := w.watch(), w.members("m1")
	w.change(m, ns, "cp-2", func() { meta.AddAnnotations(m, map[string]string{v1alpha1.AnnotationAllowDelete: "true"}) })
	out, err := w.kubectl("", "delete", "talosmachine", "cp-2", "-n", ns)
	if err == nil {
		w.t.Error("the removal of one of two control planes was admitted")
	}
	s.says("kubectl delete, of one of two control planes", out)
	w.change(m, ns, worker, func() {
		m.Spec.ForProvider.ConfigPatches = []v1alpha1.ConfigPatch{{Inline: "machine:\n  env:\n    PAIR: \"1\"\n"}}
	})
	w.awaitMessage(m, ns, worker, v1alpha1.TypeConfigApplied, "even number")
	s.condition("TalosMachine worker-1, which needs a reboot", m, v1alpha1.TypeConfigApplied)
	w.awaitReason(c, ns, cluster, v1alpha1.TypeTransitioning, v1alpha1.ReasonEvenControlPlaneCount)
	s.condition("TalosCluster prod", c, v1alpha1.TypeTransitioning)
	w.unharmed(o, voters)

	w.letGo("cp-2")
	w.resetByHand("127.91.0.12")
	w.await("the worker runs what is declared, and the cluster is well", func() error {
		w.find(m, ns, worker)
		w.find(c, ns, cluster)
		if is := m.GetCondition(v1alpha1.TypeConfigApplied); is.Status != corev1.ConditionTrue {
			return fmt.Errorf("its configuration: %s: %s", is.Reason, is.Message)
		}
		if is := c.GetCondition(v1alpha1.TypeEtcdHealthy); is.Status != corev1.ConditionTrue || c.Status.AtProvider.ControlPlanes.Voters != 1 {
			return fmt.Errorf("etcd of the cluster: %s: %s", is.Reason, is.Message)
		}
		return nil
	})
	s.condition("TalosCluster prod, after talosctl reset", c, v1alpha1.TypeTransitioning)
	o.expect("m2 Reset", "m4 ApplyConfiguration", "m4 Reboot")

	w.apply(append(controlPlaneManifests(), prodManifest())...)
	w.awaitReady(controlPlanes...)
	if n := len(w.members("m1")); n != len(controlPlanes) {
		w.t.Errorf("etcd has %d voters again", n)
	}
}

// resetByHand is talosctl reset --graceful --reboot, and waits until the machine is blank.
func (w *world) resetByHand(address string) {
	w.t.Helper()
	connection := &corev1.Secret{}
	w.find(connection, ns, cluster+"-connection")
	talosconfig, err := clientconfig.FromBytes(connection.Data["talosconfig"])
	w.must(err)
	c, err := client.New(w.ctx, client.WithConfig(talosconfig), client.WithEndpoints(address))
	w.must(err)
	defer func() { w.clean(c.Close()) }()
	w.must(c.Reset(w.ctx, true, true))
	w.await(address+" is blank", func() error {
		for _, b := range w.fleet.Machines() {
			if b.Address().String() == address && b.Stage() != "maintenance" {
				return fmt.Errorf("it is in stage %q", b.Stage())
			}
		}
		return nil
	})
}
