package faulttest

import (
	"context"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/simulator"
)

// twins are a worker and a control plane with one hostname. Their kubelets write to one Node in turns. What a person asks for
// the one must never be done to the Node of the other.
func twins(w *world) {
	const shared = "is also that of"
	w.box("w-3")
	w.fault("w-3", true, simulator.FaultDuplicateHostname)
	w.declare("w-3", v1alpha1.RoleWorker)
	w.tells(simulator.FaultDuplicateHostname, "w-3", xpv2.TypeReady, xpv2.ReasonUnavailable, shared+" cp-1")
	w.tells("duplicate-hostname, of the other one", "cp-1", xpv2.TypeReady, xpv2.ReasonUnavailable, shared+" w-3")
	before := w.now()
	w.remove("w-3")
	w.removalTells("duplicate-hostname, in a removal", "w-3", v1alpha1.ReasonNodeUnknown, shared+" cp-1")
	w.nothingSent(before)

	w.fault("w-3", false, simulator.FaultDuplicateHostname)
	w.removed("w-3")
	w.ready("cp-1")
	node, err := w.kubernetes().CoreV1().Nodes().Get(context.Background(), hostname("cp-1"), metav1.GetOptions{})
	must(w.t, err)
	if node.Spec.Unschedulable {
		w.t.Errorf("Node %s is cordoned, and it was its twin that was removed", node.Name)
	}
}
