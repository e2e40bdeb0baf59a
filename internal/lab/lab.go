// Package lab runs provider-ichor with everything around it on loopback: a management cluster, a fleet of simulated
// machines and the provider itself, each as a process of its own. It must never decide anything about a cluster: it only
// starts, stops and looks.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
	"github.com/maesh/provider-ichor/internal/lab/tools"
)

// Options of a Lab.
type Options struct {
	// Root is the root of the source tree: CRDs, webhooks and examples are read from it.
	Root string
	// Bin is the directory with the binaries of provider and talossim.
	Bin string
	// Machines is how many blank machines there are, and Subnet where: from .11 on.
	Machines int
	Subnet   netip.Prefix
	// Scale divides the waits of simulated machines.
	Scale int
	// Logs is where logs are kept of a lab that did not do what it should. It is emptied by Start.
	Logs string
	// Light leaves out what hundreds of simulated machines would cost.
	Light bool
	// Bare leaves out the provider with its kinds and webhooks: whoever started the lab installs them.
	Bare bool
	// Poll is how often the provider looks at each object; 0 is the pace of a demo.
	Poll time.Duration
	// Tell is the URL that each call that changed a machine is posted to before it is answered; empty tells nobody.
	Tell string
	// Front stands between the provider and the management cluster: it gets how to reach the cluster, and returns how the
	// provider is to reach it. Nil is no front.
	Front func(*rest.Config) (*rest.Config, error)
	// Out gets progress.
	Out io.Writer
}

// A Lab is a running lab.
type Lab struct {
	// Dir holds logs, disks and certificates.
	Dir string
	// Fleet is the control API of the simulated machines.
	Fleet *Fleet
	// Kubectl is the path of a kubectl of the management cluster's version; Kubeconfig that of its kubeconfig.
	Kubectl, Kubeconfig string

	o        Options
	cp       *controlplane.ControlPlane
	fleet    *controlplane.Process
	provider *controlplane.Process
	second   *controlplane.Process
	// besides is where the second provider serves its webhooks.
	besides *controlplane.Port
	// kubeconfig is the provider's.
	kubeconfig string
	webhook    netip.AddrPort
	certs      string
	undoing    sync.Mutex
	undo       []func() error
}

// Start starts a lab. If that fails, whatever was started is stopped again and the logs are kept.
func Start(ctx context.Context, o Options) (_ *Lab, err error) {
	l := &Lab{o: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.keepLogsOf(ctx), l.Stop())
		}
	}()
	if err := os.RemoveAll(o.Logs); err != nil {
		return nil, fmt.Errorf("cannot remove the logs of an earlier lab: %w", err)
	}
	if l.Dir, err = os.MkdirTemp("", "ichor-lab-"); err != nil {
		return nil, fmt.Errorf("cannot make a directory: %w", err)
	}
	swept, err := sweepLater(l.Dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(l.Dir))
	}
	l.later(swept)
	binaries, err := controlplane.EnsureBinaries(ctx, o.Out)
	if err != nil {
		return nil, err
	}
	kubectl, err := tools.Ensure(ctx, o.Out, tools.Kubectl)
	if err != nil {
		return nil, err
	}
	l.Kubectl = kubectl[tools.Kubectl.Name]
	steps := []func(context.Context) error{func(ctx context.Context) error { return l.startManagement(ctx, binaries) }, l.startFleet}
	if !o.Bare {
		steps = append(steps, l.installCRDs, l.writeProviderKubeconfig, l.issueWebhookCertificate, l.StartProvider, l.installWebhooks)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Config reaches the management cluster as an administrator.
func (l *Lab) Config() *rest.Config { return l.cp.RESTConfig() }

// Subnet is where the machines are.
func (l *Lab) Subnet() netip.Prefix { return l.o.Subnet }

// ManagementPID is the process ID of the management cluster's kube-apiserver.
func (l *Lab) ManagementPID() int { return l.cp.APIServerPID() }

// ManagementEtcd is the URL of the management cluster's etcd.
func (l *Lab) ManagementEtcd() string { return l.cp.EtcdEndpoint() }

// Err says which part of the lab has ended by itself, if one has: then nothing can be waited for any more.
func (l *Lab) Err() error {
	err := errors.Join(l.cp.Err(), l.fleet.Err())
	for _, p := range []*controlplane.Process{l.provider, l.second} {
		if p != nil {
			err = errors.Join(err, p.Err())
		}
	}
	return err
}

// Root is the root of the source tree.
func (l *Lab) Root() string { return l.o.Root }

// ProviderLog is the path of the provider's log: of all providers that ran, one after another.
func (l *Lab) ProviderLog() string { return filepath.Join(l.Dir, "provider.log") }

// Stop stops everything, last things first, and removes the lab's directory.
func (l *Lab) Stop() error {
	var errs []error
	for i := len(l.undo) - 1; i >= 0; i-- {
		errs = append(errs, l.undo[i]())
	}
	l.undo = nil
	return errors.Join(errs...)
}

// sayf writes a line for whoever looks on. One who does not any more misses it.
func (l *Lab) sayf(format string, args ...any) { _, _ = fmt.Fprintf(l.o.Out, format+"\n", args...) }

// later notes what Stop has to undo. Providers are started while others are.
func (l *Lab) later(undo func() error) {
	l.undoing.Lock()
	defer l.undoing.Unlock()
	l.undo = append(l.undo, undo)
}

func (l *Lab) startManagement(ctx context.Context, binaries controlplane.Binaries) (err error) {
	l.sayf("starting the management cluster (etcd, kube-apiserver, kube-controller-manager)")
	l.cp, err = controlplane.Start(ctx, controlplane.Options{
		Binaries: binaries, Dir: filepath.Join(l.Dir, "management"), Controllers: controlplane.ManagementControllers(),
	})
	if err != nil {
		return fmt.Errorf("cannot start the management cluster: %w", err)
	}
	l.later(l.cp.Stop)
	kubeconfig, err := l.cp.Kubeconfig()
	if err != nil {
		return err
	}
	l.Kubeconfig = filepath.Join(l.Dir, "kubeconfig")
	if err := os.WriteFile(l.Kubeconfig, kubeconfig, 0o600); err != nil {
		return fmt.Errorf("cannot write the kubeconfig: %w", err)
	}
	return nil
}

func (l *Lab) installCRDs(ctx context.Context) error {
	return controlplane.InstallCRDs(ctx, l.Config(), filepath.Join(l.o.Root, "package", "crds"))
}

func (l *Lab) startFleet(ctx context.Context) error {
	l.sayf("starting %d blank machines in %s", l.o.Machines, l.o.Subnet)
	port, err := controlplane.ReservePort()
	if err != nil {
		return err
	}
	defer port.Release()
	args := []string{
		"serve", "--kubernetes", "--control", port.Loopback().String(), "--machines", strconv.Itoa(l.o.Machines),
		"--subnet", l.o.Subnet.String(), "--scale", strconv.Itoa(l.o.Scale), "--dir", filepath.Join(l.Dir, "machines"),
	}
	if l.o.Light {
		args = append(args, "--light", "--quiet")
	}
	if l.o.Tell != "" {
		args = append(args, "--tell", l.o.Tell)
	}
	p, err := controlplane.StartProcess(controlplane.Command{
		Name: "talossim", Path: filepath.Join(l.o.Bin, "talossim"), Log: filepath.Join(l.Dir, "talossim.log"), Grace: 30 * time.Second, Args: args,
	})
	if err != nil {
		return fmt.Errorf("cannot start the machines: %w", err)
	}
	l.fleet = p
	l.later(p.Stop)
	l.Fleet = &Fleet{address: port.Loopback().String()}
	return Await(ctx, "the machines answer", time.Minute, func(ctx context.Context) error {
		if err := p.Err(); err != nil {
			return err
		}
		_, err := l.Fleet.Machines(ctx)
		return err
	})
}

// writeProviderKubeconfig says how the provider reaches the management cluster.
func (l *Lab) writeProviderKubeconfig(context.Context) error {
	if l.o.Front == nil {
		l.kubeconfig = l.Kubeconfig
		return nil
	}
	config, err := l.o.Front(l.Config())
	if err != nil {
		return fmt.Errorf("cannot stand in front of the management cluster: %w", err)
	}
	kubeconfig, err := controlplane.Kubeconfig(config)
	if err != nil {
		return err
	}
	l.kubeconfig = filepath.Join(l.Dir, "provider.kubeconfig")
	if err := os.WriteFile(l.kubeconfig, kubeconfig, 0o600); err != nil {
		return fmt.Errorf("cannot write the provider's kubeconfig: %w", err)
	}
	return nil
}

func (l *Lab) issueWebhookCertificate(context.Context) error {
	ca, err := controlplane.NewCA("webhooks")
	if err != nil {
		return err
	}
	pair, err := ca.Issue(controlplane.Leaf{CommonName: "webhooks", DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		return err
	}
	l.certs = filepath.Join(l.Dir, "webhook")
	if err := os.MkdirAll(l.certs, 0o700); err != nil {
		return fmt.Errorf("cannot make a directory: %w", err)
	}
	for name, data := range map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": ca.Cert} {
		if err := os.WriteFile(filepath.Join(l.certs, name), data, 0o600); err != nil {
			return fmt.Errorf("cannot write a certificate: %w", err)
		}
	}
	port, err := controlplane.ReservePort()
	if err != nil {
		return err
	}
	l.webhook = port.Loopback()
	l.later(func() error { port.Release(); return nil })
	return nil
}

// StartProvider starts the provider as Crossplane does: settings from the environment, no arguments of importance.
func (l *Lab) StartProvider(context.Context) (err error) {
	l.provider, err = l.startProvider(l.webhook)
	return err
}

func (l *Lab) startProvider(webhook netip.AddrPort) (*controlplane.Process, error) {
	args := []string{
		"--webhook-host=127.0.0.1", "--webhook-port=" + strconv.Itoa(int(webhook.Port())),
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--no-leader-election",
	}
	if l.o.Poll > 0 {
		args = append(args, "--poll="+l.o.Poll.String())
	} else {
		// Machines whose waits are scaled need not be waited for as long as real ones.
		args = append(args, "--poll=5s", "--wait=3s", "--debug")
	}
	p, err := controlplane.StartProcess(controlplane.Command{
		Name: "provider", Path: filepath.Join(l.o.Bin, "provider"), Log: l.ProviderLog(), Grace: 20 * time.Second,
		Env:  []string{"KUBECONFIG=" + l.kubeconfig, "POD_NAMESPACE=default", "WEBHOOK_TLS_CERT_DIR=" + l.certs},
		Args: args,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot start the provider: %w", err)
	}
	l.later(p.Stop)
	return p, nil
}

// AwaitProvider waits until the provider serves its webhooks.
func (l *Lab) AwaitProvider(ctx context.Context) error { return serves(ctx, l.provider, l.webhook) }

// serves waits until a provider serves its webhooks.
func serves(ctx context.Context, p *controlplane.Process, webhook netip.AddrPort) error {
	return Await(ctx, "the webhooks are served", time.Minute, func(ctx context.Context) error {
		if err := p.Err(); err != nil {
			return err
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", webhook.String())
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// ProviderPID is the process ID of the provider.
func (l *Lab) ProviderPID() int { return l.provider.PID() }

// KillProvider ends the provider at once, as kill -9 does.
func (l *Lab) KillProvider() error { return l.provider.Kill() }

func (l *Lab) installWebhooks(ctx context.Context) error {
	if err := l.AwaitProvider(ctx); err != nil {
		return err
	}
	return l.askWebhooksAt(ctx, l.webhook)
}

// askWebhooksAt has the management cluster ask the provider that serves there.
func (l *Lab) askWebhooksAt(ctx context.Context, webhook netip.AddrPort) error {
	ca, err := os.ReadFile(filepath.Join(l.certs, "ca.crt"))
	if err != nil {
		return fmt.Errorf("cannot read a certificate: %w", err)
	}
	return controlplane.InstallValidatingWebhooks(ctx, l.Config(), "https://"+webhook.String(), ca, filepath.Join(l.o.Root, "package", "webhooks.yaml"))
}
