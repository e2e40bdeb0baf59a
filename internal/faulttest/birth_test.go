package faulttest

import (
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/simulator"
)

// birth is how the cluster comes to be: the machine that etcd is begun on answers Bootstrap, and then its etcd service fails.
// Talos starts that again with the machine only, and then it has forgotten that it was to begin etcd: so Bootstrap is sent to it
// twice, once in each boot.
func birth(w *world) {
	before := w.now()
	w.box("cp-1")
	w.fault("cp-1", true, simulator.FaultEtcdBootstrapFails)
	w.declare("cp-1", v1alpha1.RoleControlPlane)
	w.await("cp-1 waits for its etcd to be begun", func() bool { // Then it is the first by name of those that do.
		state, _ := w.box("cp-1").EtcdState()
		return state == "Preparing"
	})
	for _, name := range []string{"cp-2", "cp-3"} {
		w.declare(name, v1alpha1.RoleControlPlane)
	}
	w.declare("w-1", v1alpha1.RoleWorker)
	w.clusterTells(simulator.FaultEtcdBootstrapFails, xpv2.TypeReady, v1alpha1.ReasonBootstrapping, "failed to generate etcd PKI")
	w.tells("etcd-bootstrap-fails, of the machine", "cp-1", xpv2.TypeReady, v1alpha1.ReasonBooting, "failed to generate etcd PKI")
	w.sentTimes(before, "cp-1", "Bootstrap", 1)

	w.fault("cp-1", false, simulator.FaultEtcdBootstrapFails)
	w.powerCycle("cp-1")
	w.ready("cp-1", "cp-2", "cp-3", "w-1")
	w.sentTimes(before, "cp-1", "Bootstrap", 2)
}
