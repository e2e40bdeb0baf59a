package simulator

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeclient "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
)

// clusterTimeout bounds every wait for a whole cluster: an API server, and three members that join one after another.
const clusterTimeout = 2 * time.Minute

// poll polls what nothing tells the test about, until it is so or clusterTimeout is over.
func poll(t *testing.T, what string, is func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clusterTimeout)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := is(ctx)
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain until %s: %v", what, err)
		}
	}
}

// awaitCluster waits until every machine is ready, however long a cluster takes.
func awaitCluster(t *testing.T, machines ...*Machine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clusterTimeout)
	defer cancel()
	for _, m := range machines {
		if err := m.Wait(ctx, (*Machine).Ready); err != nil {
			state, healthy := m.EtcdState()
			t.Fatalf("%s never became ready (etcd %s, healthy %t): %v", m.Name(), state, healthy, err)
		}
	}
}

// monitor connects straight to a machine's etcd.
func monitor(t *testing.T, f *Fleet, m *Machine) *clientv3.Client {
	t.Helper()
	cli, err := f.Etcd(m.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// awaitVoters waits until a member tells of exactly these started voters, by hostname.
func awaitVoters(t *testing.T, cli *clientv3.Client, want ...string) {
	t.Helper()
	slices.Sort(want)
	poll(t, fmt.Sprintf("the voters are %q", want), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, testTimeout)
		defer cancel()
		list, err := cli.MemberList(ctx)
		if err != nil {
			return err
		}
		got := []string{}
		for _, m := range list.Members {
			if m.IsLearner {
				return fmt.Errorf("%q is a learner", m.Name)
			}
			got = append(got, m.Name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("they are %q", got)
		}
		return nil
	})
}

// kubeClient is Kubernetes as `talosctl kubeconfig` of a machine leads to it.
func kubeClient(t *testing.T, c *testCluster, m *Machine) *kubeclient.Clientset {
	t.Helper()
	data, err := c.client(t, m).Kubeconfig(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubeclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return kube
}

func awaitReadyNodes(t *testing.T, kube *kubeclient.Clientset, want ...string) {
	t.Helper()
	slices.Sort(want)
	poll(t, fmt.Sprintf("the ready nodes are %q", want), func(ctx context.Context) error {
		list, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		got := []string{}
		for _, n := range list.Items {
			for _, condition := range n.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
					got = append(got, n.Name)
				}
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("they are %q", got)
		}
		return nil
	})
}

// startCluster applies configurations to blank machines, bootstraps the first, and waits until all are ready. The names of
// control planes begin with "cp".
func startCluster(t *testing.T, f *Fleet, c *testCluster, names ...string) []*Machine {
	t.Helper()
	machines := []*Machine{}
	for _, name := range names {
		machines = append(machines, addMachine(t, f, MachineSpec{Name: name}))
	}
	for _, m := range machines {
		awaitStage(t, m, "maintenance")
		kind := machinetype.TypeWorker
		if strings.HasPrefix(m.Name(), "cp") {
			kind = machinetype.TypeControlPlane
		}
		request := &machine.ApplyConfigurationRequest{Data: c.config(t, kind)}
		if _, err := insecure(t, m).ApplyConfiguration(testContext(t), request); err != nil {
			t.Fatal(err)
		}
	}
	poll(t, "the first machine waits for its bootstrap", func(context.Context) error {
		m := machines[0]
		if state, _ := m.EtcdState(); state != svcPreparing || m.InstalledConfig() == nil || !m.APIUp() {
			return fmt.Errorf("etcd is %q, the API is up: %t", state, m.APIUp())
		}
		return nil
	})
	if err := c.client(t, machines[0]).Bootstrap(testContext(t), &machine.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}
	awaitCluster(t, machines...)
	return machines
}

func hostnames(machines ...*Machine) []string {
	out := []string{}
	for _, m := range machines {
		out = append(out, m.Hostname())
	}
	return out
}

// TestClusterWithEtcdAndKubernetes is a cluster of real etcd members and a real API server from blank machines on, until one of
// its control planes has left and is blank again.
func TestClusterWithEtcdAndKubernetes(t *testing.T) {
	binaries, err := controlplane.EnsureBinaries(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	f := newTestFleet(t, Options{Kubernetes: true, Binaries: binaries})
	c := newTestCluster(t, endpointOf(f))
	machines := startCluster(t, f, c, "cp1", "cp2", "cp3", "w1")
	cp1, cp2, cp3 := machines[0], machines[1], machines[2]
	etcd, kube := monitor(t, f, cp1), kubeClient(t, c, cp1)
	awaitVoters(t, etcd, hostnames(cp1, cp2, cp3)...)
	awaitReadyNodes(t, kube, hostnames(machines...)...)

	left := cp2.Hostname()
	ctx, cancel := context.WithTimeout(t.Context(), clusterTimeout)
	defer cancel()
	if err := c.client(t, cp2).EtcdLeaveCluster(ctx, &machine.EtcdLeaveClusterRequest{}); err != nil {
		t.Fatal(err)
	}
	awaitVoters(t, etcd, hostnames(cp1, cp3)...)
	if err := c.client(t, cp2).ResetGeneric(ctx, wipe(labelState, labelEphemeral)); err != nil {
		t.Fatal(err)
	}
	if err := cp2.Wait(ctx, func(m *Machine) bool { return m.Stage() == "maintenance" && m.APIUp() }); err != nil {
		t.Fatal(err)
	}
	if cp2.HasPartition(labelState) || cp2.HasPartition(labelEphemeral) {
		t.Error("the machine was not wiped")
	}
	for _, m := range []*Machine{cp1, cp3} {
		awaitVoters(t, monitor(t, f, m), hostnames(cp1, cp3)...)
	}
	// Talos never deletes a node: it stays, and is not ready once its lease has run out.
	if _, err := kube.CoreV1().Nodes().Get(ctx, left, metav1.GetOptions{}); err != nil {
		t.Errorf("the node of the machine that left: %v", err)
	}
	awaitReadyNodes(t, kube, hostnames(cp1, cp3, machines[3])...)
}
