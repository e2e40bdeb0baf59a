package crossplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	pkgv1 "github.com/crossplane/crossplane/apis/v2/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
	"github.com/maesh/provider-ichor/internal/lab/tools"
)

const (
	// Namespace of Crossplane and of everything that packages run.
	Namespace = "crossplane-system"

	// webhookService is the Service that the API server asks whether an object is in use.
	webhookService = "crossplane-webhooks"

	// initAttempts is how often core's initialization may fail. Each takes a second, and the second one usually succeeds.
	initAttempts = 5

	caSecret, serverSecret, clientSecret = "crossplane-root-ca", "crossplane-tls-server", "crossplane-tls-client"
)

// Options say what Start starts.
type Options struct {
	// Config reaches the API server as an administrator.
	Config *rest.Config

	// Dir keeps logs, certificates, caches and what packages run.
	Dir string

	// Args are added to core's own.
	Args []string

	// Environment is added to that of what a package runs, as KEY=value, by the package's name in its registry: what its
	// user would write into a DeploymentRuntimeConfig. It is given the loopback address that stands for the pod's own.
	Environment map[string]func(pod netip.Addr) []string

	// Out gets progress of builds.
	Out io.Writer
}

// Crossplane is a running core.
type Crossplane struct {
	// Registry that packages are pushed to and installed from.
	Registry *Registry

	o        Options
	kube     client.Client
	packages *packageRuntime
	rbac     *controlplane.Process

	command controlplane.Command // of core
	mu      sync.Mutex           // guards core
	core    *controlplane.Process
	undo    []func() error // in the order of making; Stop goes backwards
}

// Start starts Crossplane. It returns when core runs; what it installs becomes healthy later. On an error nothing is left.
func Start(ctx context.Context, o Options) (_ *Crossplane, err error) {
	c := &Crossplane{o: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	paths, err := tools.Ensure(ctx, o.Out, tools.Crossplane)
	if err != nil {
		return nil, err
	}
	source, err := tools.ModuleDir(ctx, tools.Crossplane)
	if err != nil {
		return nil, err
	}
	if c.kube, err = newClient(o.Config); err != nil {
		return nil, err
	}
	if c.Registry, err = startRegistry(); err != nil {
		return nil, err
	}
	c.later(c.Registry.stop)
	if err := c.startCore(ctx, paths[tools.Crossplane.Name], source); err != nil {
		return nil, err
	}
	if c.packages, err = startPackageRuntime(ctx, o, c.kube); err != nil {
		return nil, err
	}
	c.later(c.packages.stop)
	return c, nil
}

func newClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), pkgv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("cannot make a scheme: %w", err)
	}
	kube, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	return kube, nil
}

// Stop stops everything, last things first. Stopping twice does no harm.
func (c *Crossplane) Stop() error {
	var errs []error
	for _, undo := range slices.Backward(c.undo) {
		errs = append(errs, undo())
	}
	c.undo = nil
	return errors.Join(errs...)
}

func (c *Crossplane) later(undo func() error) { c.undo = append(c.undo, undo) }

// Err is nil as long as core runs and packages can be started.
func (c *Crossplane) Err() error {
	return errors.Join(c.running().Err(), c.rbac.Err(), c.packages.err())
}

// running is the process of core.
func (c *Crossplane) running() *controlplane.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core
}

// KillCore ends core at once, as kill -9 does, and starts it again.
func (c *Crossplane) KillCore() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.core.Kill(); err != nil {
		return err
	}
	again, err := controlplane.StartProcess(c.command)
	if err != nil {
		return err
	}
	c.core = again
	return nil
}

// startCore runs core's initialization and then core itself and the RBAC manager, as Crossplane's chart does.
func (c *Crossplane) startCore(ctx context.Context, binary, source string) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	kubeconfig, err := controlplane.Kubeconfig(c.o.Config)
	if err != nil {
		return err
	}
	admin := filepath.Join(c.o.Dir, "admin.kubeconfig")
	if err := writeFiles(c.o.Dir, map[string][]byte{"admin.kubeconfig": kubeconfig}); err != nil {
		return err
	}
	if err := c.prepareNamespace(ctx); err != nil {
		return err
	}
	env := []string{
		"KUBECONFIG=" + admin, "POD_NAMESPACE=" + Namespace,
		"TLS_CA_SECRET_NAME=" + caSecret, "TLS_SERVER_SECRET_NAME=" + serverSecret, "TLS_CLIENT_SECRET_NAME=" + clientSecret,
		"WEBHOOK_SERVICE_NAME=" + webhookService, "WEBHOOK_SERVICE_NAMESPACE=" + Namespace, "WEBHOOK_SERVICE_PORT=" + strconv.Itoa(int(ports[0])),
		"CRDS_PATH=" + filepath.Join(source, "cluster", "crds"), "WEBHOOK_CONFIGS_PATH=" + filepath.Join(source, "cluster", "webhookconfigurations"),
	}
	if err := c.initialize(ctx, binary, env); err != nil {
		return err
	}
	for secret, dir := range map[string]string{serverSecret: "tls-server", clientSecret: "tls-client"} {
		if err := c.dump(ctx, secret, filepath.Join(c.o.Dir, dir)); err != nil {
			return err
		}
	}
	cache := filepath.Join(c.o.Dir, "xpkg-cache")
	if err := os.MkdirAll(cache, 0o700); err != nil { // Without it, core says that packages cannot be parsed.
		return fmt.Errorf("cannot make a cache for packages: %w", err)
	}
	c.command = controlplane.Command{
		Name: "crossplane", Path: binary, Log: filepath.Join(c.o.Dir, "crossplane.log"), Grace: 10 * time.Second,
		Env: append(env,
			"TLS_SERVER_CERTS_DIR="+filepath.Join(c.o.Dir, "tls-server"), "TLS_CLIENT_CERTS_DIR="+filepath.Join(c.o.Dir, "tls-client"),
			"XPKG_CACHE_DIR="+cache, "XFN_CACHE_DIR="+filepath.Join(c.o.Dir, "xfn-cache"),
			"WEBHOOK_PORT="+strconv.Itoa(int(ports[0])), "METRICS_PORT="+strconv.Itoa(int(ports[1])), "HEALTH_PROBE_PORT="+strconv.Itoa(int(ports[2]))),
		Args: append([]string{"core", "start", "--package-runtime=External", "--enable-operations", "--debug"}, c.o.Args...),
	}
	if c.core, err = controlplane.StartProcess(c.command); err != nil {
		return fmt.Errorf("cannot start Crossplane: %w", err)
	}
	c.later(func() error { return c.running().Stop() })
	c.rbac, err = controlplane.StartProcess(controlplane.Command{
		Name: "crossplane rbac", Path: binary, Log: filepath.Join(c.o.Dir, "crossplane-rbac.log"), Grace: 10 * time.Second,
		Env: env, Args: []string{"rbac", "start"},
	})
	if err != nil {
		return fmt.Errorf("cannot start Crossplane's RBAC manager: %w", err)
	}
	c.later(c.rbac.Stop)
	return nil
}

// prepareNamespace makes what Crossplane's chart makes before core runs.
func (c *Crossplane) prepareNamespace(ctx context.Context) error {
	meta := metav1.ObjectMeta{Namespace: Namespace, Name: "crossplane"}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}},
		&corev1.ServiceAccount{ObjectMeta: meta},
		loopbackService(webhookService, "localhost"),
	} {
		if err := c.kube.Create(ctx, o); err != nil && !kerrors.IsAlreadyExists(err) {
			return fmt.Errorf("cannot make what Crossplane needs: %w", err)
		}
	}
	return nil
}

// loopbackService leads the API server to an address of this machine, though nothing here routes the addresses of Services: it
// connects to the host at the very port that it was told of.
func loopbackService(name, host string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: host},
	}
}

// initialize runs core's initialization until it succeeds, as a kubelet does: it writes objects of kinds that it has only just
// written, and gives up if those are not served yet.
func (c *Crossplane) initialize(ctx context.Context, binary string, env []string) error {
	var last error
	for range initAttempts {
		p, err := controlplane.StartProcess(controlplane.Command{
			Name: "crossplane core init", Path: binary, Log: filepath.Join(c.o.Dir, "crossplane-init.log"),
			Env: env, Args: []string{"core", "init", "--activation=*"},
		})
		if err != nil {
			return fmt.Errorf("cannot start Crossplane: %w", err)
		}
		select {
		case <-p.Died():
		case <-ctx.Done():
			return errors.Join(ctx.Err(), p.Stop())
		}
		if last = p.Err(); p.Succeeded() {
			return nil
		}
	}
	return last
}

// freePorts finds ports for core, which listens at every address of this machine and cannot be told otherwise. So nobody may
// hold them any more when it starts; what reserves ports afterwards finds them taken.
func freePorts(n int) (numbers []uint16, err error) {
	for range n {
		port, err := controlplane.ReservePort()
		if err != nil {
			return nil, err
		}
		defer port.Release() // at the end, so that no port is found twice
		numbers = append(numbers, port.Number)
	}
	return numbers, nil
}

// dump writes a Secret into a directory, as a volume of a pod has it.
func (c *Crossplane) dump(ctx context.Context, name, dir string) error {
	s := &corev1.Secret{}
	if err := c.kube.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, s); err != nil {
		return fmt.Errorf("cannot get the Secret %q: %w", name, err)
	}
	return writeFiles(dir, s.Data)
}

func writeFiles(dir string, contents map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make a place for certificates: %w", err)
	}
	for name, content := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return fmt.Errorf("cannot write %q: %w", name, err)
		}
	}
	return nil
}

// Kill ends what runs for a package, named as in its registry, at once, as kill -9 does. It is started again, as a kubelet would.
func (c *Crossplane) Kill(pkg string) error {
	return c.packages.with(pkg, func(w *workload) error { return w.process.Kill() })
}

// Serves is nil if what runs for a package takes connections.
func (c *Crossplane) Serves(ctx context.Context, pkg string) error {
	return c.packages.with(pkg, func(w *workload) error { return w.serves(ctx) })
}

// Address is the loopback address that stands for that of the pod of a package.
func (c *Crossplane) Address(pkg string) (at netip.Addr, err error) {
	err = c.packages.with(pkg, func(w *workload) error { at = w.address; return nil })
	return at, err
}
