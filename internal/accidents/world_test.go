package accidents

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/internal/controller"
	"github.com/maesh/provider-ichor/internal/lab/controlplane"
	"github.com/maesh/provider-ichor/internal/lab/story"
	"github.com/maesh/provider-ichor/internal/simulator"
)

const (
	// scale divides the waits of the simulated machines.
	scale = 20
	// subnet of the machines, away from that of the demo.
	subnet = "127.91.0.0/24"
	// endpoint of every cluster of this package: there is one after another.
	endpoint = "https://127.91.0.10:6443"
	// user is who the provider is to the API server: somebody who may do what its role says and nothing else.
	user = "provider-ichor"
)

// A world is a management cluster, blank machines, and the provider, which can be stopped and started again. The tests
// are its administrator.
type world struct {
	client.Client

	t     *testing.T
	ctx   context.Context //nolint:containedctx // It is the life of one test.
	dir   string
	api   *controlplane.ControlPlane
	fleet *simulator.Fleet
	clock *shiftedClock
	hook  hook
	log   *logbook
	// secrets of all clusters, which nothing that people see may have.
	secrets story.Secrets

	told    int  // how many accidents
	running bool // the provider
	stop    func()
}

// newWorld starts everything but the provider.
func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, dir: t.TempDir(), clock: &shiftedClock{}, log: &logbook{}, secrets: story.Secrets{}, stop: func() {}}
	ctrl.SetLogger(w.log.logger())
	w.write("audit-policy.yaml", auditPolicy)
	var err error
	w.api, err = controlplane.Start(ctx, controlplane.Options{
		Binaries: binaries, Controllers: controlplane.ManagementControllers(),
		APIServerArgs: []string{"--audit-policy-file=" + w.path("audit-policy.yaml"), "--audit-log-path=" + w.path("audit.log")},
	})
	w.must(err)
	t.Cleanup(func() { w.clean(w.api.Stop()) })
	kubeconfig, err := w.api.Kubeconfig()
	w.must(err)
	w.write("kubeconfig", string(kubeconfig))
	w.must(controlplane.InstallCRDs(ctx, w.api.RESTConfig(), root("package", "crds")))
	scheme, err := controller.NewScheme()
	w.must(err)
	w.Client, err = client.New(w.api.RESTConfig(), client.Options{Scheme: scheme})
	w.must(err)

	w.fleet, err = simulator.NewFleet(simulator.Options{
		Dir: w.path("machines"), Subnet: netip.MustParsePrefix(subnet), Scale: scale, Kubernetes: true, Binaries: binaries,
	})
	w.must(err)
	t.Cleanup(func() { w.clean(w.fleet.Close()) })
	for i := 1; i <= 5; i++ {
		_, err := w.fleet.AddMachine(simulator.MachineSpec{Name: fmt.Sprintf("m%d", i), UUID: uuid(i)})
		w.must(err)
	}
	w.prepareProvider()
	t.Cleanup(func() { w.stop() })
	return w
}

// uuid of the i-th machine.
func uuid(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

// root is a path in the source tree.
func root(elem ...string) string { return filepath.Join(append([]string{"..", ".."}, elem...)...) }

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) write(name, text string) {
	w.t.Helper()
	w.must(os.WriteFile(w.path(name), []byte(text), 0o600))
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) clean(err error) {
	if err != nil {
		w.t.Errorf("cannot clean up: %v", err)
	}
}

// kubectl runs kubectl as a person does, and returns all that it prints.
func (w *world) kubectl(stdin string, args ...string) (string, error) {
	w.t.Helper()
	cmd := exec.CommandContext(w.ctx, kubectl, append([]string{"--kubeconfig", w.path("kubeconfig")}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// apply is kubectl apply, of which the objects keep that they were applied.
func (w *world) apply(manifests ...string) {
	w.t.Helper()
	if out, err := w.kubectl(strings.Join(manifests, "---\n"), "apply", "-f", "-"); err != nil {
		w.t.Fatalf("kubectl apply: %v: %s", err, out)
	}
}

// A shiftedClock is the real clock, ahead by as much as a test says: to wait for minutes without waiting.
type shiftedClock struct {
	clock.RealClock

	ahead atomic.Int64
}

func (c *shiftedClock) Now() time.Time                  { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *shiftedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c *shiftedClock) step(d time.Duration)            { c.ahead.Add(int64(d)) }

// as is a configuration to reach the API server as somebody whom only roles allow anything.
func (w *world) as(name string) *rest.Config {
	w.t.Helper()
	pair, err := w.api.PKI.CA.Issue(controlplane.Leaf{CommonName: name})
	w.must(err)
	cfg := rest.AnonymousClientConfig(w.api.RESTConfig())
	cfg.CertData, cfg.KeyData = pair.Cert, pair.Key
	cfg.QPS, cfg.Burst = 100, 200
	return cfg
}
