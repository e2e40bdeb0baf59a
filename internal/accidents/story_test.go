package accidents

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

const (
	ns      = "metal"
	cluster = "prod"
	worker  = "worker-1"
	site    = "site"
)

var controlPlanes = []string{"cp-1", "cp-2", "cp-3"}

// TestAccidents is one story: each accident happens to the cluster that the one before it left behind, unharmed. In the
// end the provider has done all that it ever does, and is asked which permissions that took.
func TestAccidents(t *testing.T) {
	w := newWorld(t)
	all := []struct {
		name   string
		happen func(*transcript)
	}{
		{"DeletedBeforeTheFirstObserve", w.deletedBeforeTheFirstObserve},
		{"ComesUp", w.comesUp},
		{"PruneOfAllControlPlanes", w.pruneOfAllControlPlanes},
		{"PrunePastTheWebhooks", w.prunePastTheWebhooks},
		{"ManagementPoliciesWithoutDelete", w.managementPoliciesWithoutDelete},
		{"PausedMidRemoval", w.pausedMidRemoval},
		{"RecreatedWhileReset", w.recreatedWhileReset},
		{"OwnPodOnTheVictim", w.ownPodOnTheVictim},
		{"UnreachableMachine", w.unreachableMachine},
		{"DiskThatIsNotWiped", w.diskThatIsNotWiped},
		{"FromThreeToOne", w.fromThreeToOne},
		{"PKISecretDeleted", w.pkiSecretDeleted},
		{"ClusterDeletedMidRemoval", w.clusterDeletedMidRemoval},
		{"ClusterDeletedAfterALeave", w.clusterDeletedAfterALeave},
		{"NamespaceDeleted", w.namespaceDeleted},
	}
	for _, a := range all {
		if !t.Run(a.name, func(t *testing.T) { w.tell(t, a.name, a.happen) }) {
			t.FailNow() // What follows is the story of another world.
		}
	}
	if w.told == len(all) { // Not if -run has picked some.
		w.tellsNoSecret()
		w.expectLeastPrivilege()
	}
}

// tell one accident, and compare what people were told with what was reviewed.
func (w *world) tell(t *testing.T, name string, happen func(*transcript)) {
	whole := w.t
	w.t = t
	defer func() { w.t = whole }()
	s := w.transcript(name)
	happen(s)
	w.told++
	if s.text.Len() > 0 {
		s.check(t)
	}
}

// What a site decides once: for everybody, and for the namespace of the first cluster.
const (
	clusterConfig = `apiVersion: ichor.maesh.dev/v1alpha1
kind: ClusterProviderConfig
metadata: {name: default}
spec: {credentials: {source: None}}
`
	siteConfig = `apiVersion: ichor.maesh.dev/v1alpha1
kind: ProviderConfig
metadata: {namespace: ` + ns + `, name: ` + site + `}
spec: {credentials: {source: None}}
`
)

func clusterManifest(namespace, name, config string, count int) string {
	return fmt.Sprintf(`apiVersion: ichor.maesh.dev/v1alpha1
kind: TalosCluster
metadata: {namespace: %s, name: %s, labels: {app: %s}}
spec:
  forProvider:
    endpoint: %s
    controlPlane: {count: %d}
    versions: {talos: v1.13.9, kubernetes: v1.35.4}
  providerConfigRef: {kind: %s}
  writeConnectionSecretToRef: {name: %s-connection}
`, namespace, name, name, endpoint, count, config, name)
}

// prodManifest declares the first cluster.
func prodManifest() string {
	return clusterManifest(ns, cluster, v1alpha1.ProviderConfigKind+", name: "+site, 3)
}

// machineManifest declares the i-th machine.
func machineManifest(namespace, of, name, role string, i int) string {
	return fmt.Sprintf(`apiVersion: ichor.maesh.dev/v1alpha1
kind: TalosMachine
metadata: {namespace: %s, name: %s, labels: {app: %s}}
spec:
  forProvider:
    clusterRef: {name: %s}
    role: %s
    approved: true
    address: 127.91.0.%d
    install: {disk: /dev/sda}
`, namespace, name, of, of, role, 10+i)
}

func controlPlaneManifests() []string {
	var all []string
	for i, name := range controlPlanes {
		all = append(all, machineManifest(ns, cluster, name, "controlplane", i+1))
	}
	return all
}

func workerManifest() string { return machineManifest(ns, cluster, worker, "worker", 4) }

// comesUp: the cluster that all accidents happen to.
func (w *world) comesUp(*transcript) {
	w.startProvider()
	w.apply(append(controlPlaneManifests(), clusterConfig, siteConfig, prodManifest(), workerManifest())...)
	w.awaitReady(append([]string{worker}, controlPlanes...)...)
	w.usesAnotherConfig()
	w.learnSecrets(ns, cluster)
	if got := strings.Join(observer{w: w}.sent(), "\n"); strings.Count(got, "Bootstrap") != 1 {
		w.t.Errorf("Bootstrap was not sent exactly once:\n%s", got)
	}
}

// usesAnotherConfig: somebody names another ProviderConfig, and the note of its use follows.
func (w *world) usesAnotherConfig() {
	w.t.Helper()
	m, config := &v1alpha1.TalosMachine{}, &v1alpha1.ProviderConfig{}
	w.find(config, ns, site)
	users := config.Status.Users
	w.change(m, ns, worker, func() {
		m.SetProviderConfigReference(&xpv2.ProviderConfigReference{Kind: v1alpha1.ProviderConfigKind, Name: site})
	})
	w.await("the ProviderConfig has one more user", func() error {
		if w.find(config, ns, site); config.Status.Users != users+1 {
			return fmt.Errorf("it has %d, had %d", config.Status.Users, users)
		}
		return nil
	})
}

// awaitReady waits until the cluster is whole and these machines are Ready.
func (w *world) awaitReady(machines ...string) {
	w.t.Helper()
	w.await("the cluster is Ready", func() error {
		c := &v1alpha1.TalosCluster{}
		if !w.find(c, ns, cluster) {
			return errors.New("it does not exist")
		}
		cp := c.Status.AtProvider.ControlPlanes
		if c.GetCondition(xpv2.TypeReady).Status != corev1.ConditionTrue || cp.HealthyVoters != 3 {
			return fmt.Errorf("%+v: %s", cp, conditionsOf(c))
		}
		return nil
	})
	for _, name := range machines {
		w.await(name+" is Ready", func() error {
			m := &v1alpha1.TalosMachine{}
			if !w.find(m, ns, name) {
				return errors.New("it does not exist")
			}
			if m.GetDeletionTimestamp() != nil || m.GetCondition(xpv2.TypeReady).Status != corev1.ConditionTrue || m.GetCondition(xpv2.TypeSynced).Status != corev1.ConditionTrue {
				return errors.New(conditionsOf(m))
			}
			return nil
		})
	}
}
