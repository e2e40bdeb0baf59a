package soak

import (
	"bytes"
	"encoding/json"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// stored is a Lease as kube-apiserver writes it.
func stored(t *testing.T, holder string) []byte {
	t.Helper()
	lease := &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holder)},
	}
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(lease, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// storedMachine is a machine that is being deleted as kube-apiserver writes it.
func storedMachine(t *testing.T, name string, change func(*v1alpha1.TalosMachine)) []byte {
	t.Helper()
	m := &v1alpha1.TalosMachine{}
	m.SetName(name)
	m.SetUID(types.UID("uid-" + name))
	m.SetDeletionTimestamp(&metav1.Time{Time: noon})
	m.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionAll})
	m.Spec.ForProvider.Address, m.Spec.ForProvider.Approved = "127.10.0.11", true
	change(m)
	out, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// lockKey is that of the lock of a cluster that is not called as that of a campaign.
const lockKey = leasesKey + "other" + lockSuffix

// TestLedger holds what a monitor makes of what is written.
func TestLedger(t *testing.T) {
	m := &monitor{
		judge: newJudge(), machines: map[string]*v1alpha1.TalosMachine{}, removals: map[string]int{},
		names: map[string]string{"127.10.0.11": "m1"}, tell: t.Logf,
	}
	write := func(key string, value []byte) {
		t.Helper()
		if err := turn(key, value, m.read); err != nil {
			t.Fatal(err)
		}
	}
	write(lockKey, stored(t, machineHolder+"uid-cp-1"))
	if _, _, held := m.job(); !held {
		t.Error("the lock is not seen to be held")
	}
	for name, change := range map[string]func(*v1alpha1.TalosMachine){
		"cp-1": func(*v1alpha1.TalosMachine) {},
		"cp-2": func(m *v1alpha1.TalosMachine) { m.SetManagementPolicies(everythingButDelete) },
		"cp-3": func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Approved = false },
		"cp-4": func(m *v1alpha1.TalosMachine) {
			m.SetConditions(xpv2.Condition{Type: v1alpha1.TypeRemoval, Status: "False", Reason: "Held"})
		},
	} {
		write(machinesKey+name, storedMachine(t, name, change))
		if name != "cp-4" {
			write(machinesKey+name, nil)
		}
	}
	write(lockKey, nil)
	write("/registry/secrets/default/other", []byte("no business of a ledger"))
	if _, _, held := m.job(); held {
		t.Error("the lock is not seen to be free")
	}
	got := newTally()
	m.tally(&got)
	if diff := cmp.Diff(map[string]int{endedDone: 1, endedCalledOff: 1, endedUndone: 1, "that wait: Held": 1}, got.Removals); diff != "" {
		t.Errorf("removals: -want, +got:\n%s", diff)
	}
	if e := m.judge.endings; len(e) != 1 || e[0].machine != "m1" || e[0].object != "cp-1" {
		t.Errorf("endings to be judged: %+v", e)
	}
	if got := m.judge.owners[machineHolder+"uid-cp-1"]; got != "m1" {
		t.Errorf("the lock of cp-1 is for machine %q", got)
	}
	for _, key := range []string{lockKey, machinesKey + "cp-1"} {
		if err := turn(key, []byte("?"), m.read); err == nil {
			t.Errorf("%s: what cannot be read was passed over", key)
		}
	}
}
