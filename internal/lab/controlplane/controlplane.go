package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/maesh/provider-ichor/internal/lab/tools"
)

// Binaries are the paths of the programs. Those that are not used may be empty.
type Binaries struct {
	Etcd, APIServer, ControllerManager, Scheduler string
}

// EnsureBinaries returns the programs and builds those that are missing; see tools.Ensure.
func EnsureBinaries(ctx context.Context, w io.Writer) (Binaries, error) {
	paths, err := tools.Ensure(ctx, w, tools.Etcd, tools.KubeAPIServer, tools.KubeControllerManager, tools.KubeScheduler)
	if err != nil {
		return Binaries{}, err
	}
	return Binaries{
		Etcd:              paths[tools.Etcd.Name],
		APIServer:         paths[tools.KubeAPIServer.Name],
		ControllerManager: paths[tools.KubeControllerManager.Name],
		Scheduler:         paths[tools.KubeScheduler.Name],
	}, nil
}

// Options say what Start starts.
type Options struct {
	Binaries Binaries

	// Dir keeps data, certificates and logs. Empty means a directory of its own that Stop removes.
	Dir string

	// Controllers are the controllers to run, such as ManagementControllers(). None means no kube-controller-manager:
	// the start is faster, but owner references have no effect and namespaces never end.
	Controllers []string

	// APIServerArgs are more flags for kube-apiserver.
	APIServerArgs []string
}

// ControlPlane is a running etcd and kube-apiserver, with kube-controller-manager if it was asked for.
type ControlPlane struct {
	// PKI of this control plane.
	PKI PKI

	api  *APIServer
	etcd *Etcd
	dir  string
	undo []func() error // in the order of making; Stop goes backwards
}

// Start starts a control plane without nodes and waits until its API is ready. On an error nothing is left running.
func Start(ctx context.Context, o Options) (_ *ControlPlane, err error) {
	c := &ControlPlane{dir: o.Dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "provider-ichor-controlplane-"); err != nil {
			return nil, fmt.Errorf("cannot make a place for the control plane: %w", err)
		}
		c.undo = append(c.undo, func() error { return os.RemoveAll(c.dir) })
	}
	if c.PKI, err = NewPKI(); err != nil {
		return nil, err
	}
	if c.etcd, err = c.startEtcd(ctx, o.Binaries.Etcd); err != nil {
		return nil, err
	}
	if err := c.startAPIServer(ctx, o, c.etcd); err != nil {
		return nil, err
	}
	if len(o.Controllers) == 0 {
		return c, nil
	}
	manager, err := StartControllerManager(ControllerManagerOptions{
		Binary: o.Binaries.ControllerManager, Dir: c.dir, Config: c.RESTConfig(), Controllers: o.Controllers, PKI: c.PKI,
	})
	if err != nil {
		return nil, err
	}
	c.undo = append(c.undo, manager.Stop)
	return c, nil
}

func (c *ControlPlane) startEtcd(ctx context.Context, binary string) (*Etcd, error) {
	client, err := c.reservePort()
	if err != nil {
		return nil, err
	}
	peer, err := c.reservePort()
	if err != nil {
		return nil, err
	}
	etcd, err := StartEtcd(ctx, EtcdOptions{
		Binary: binary, Dir: filepath.Join(c.dir, "etcd"), Client: client.Loopback(), Peer: peer.Loopback(),
	})
	if err != nil {
		return nil, err
	}
	c.undo = append(c.undo, etcd.Stop)
	return etcd, nil
}

func (c *ControlPlane) startAPIServer(ctx context.Context, o Options, etcd *Etcd) error {
	port, err := c.reservePort()
	if err != nil {
		return err
	}
	c.api, err = StartAPIServer(ctx, APIServerOptions{
		Binary:          o.Binaries.APIServer,
		Dir:             c.dir,
		Bind:            port.Loopback(),
		PKI:             c.PKI,
		Etcd:            EtcdClient{Endpoints: []string{etcd.Endpoint}},
		ServiceAccounts: slices.Contains(o.Controllers, "serviceaccount-controller"),
		Args:            o.APIServerArgs,
	})
	if err != nil {
		return err
	}
	c.undo = append(c.undo, c.api.Stop)
	return nil
}

func (c *ControlPlane) reservePort() (*Port, error) {
	port, err := ReservePort()
	if err != nil {
		return nil, err
	}
	c.undo = append(c.undo, func() error { port.Release(); return nil })
	return port, nil
}

// Stop ends what Start started, last first, and returns when it is gone. Stopping twice does no harm.
func (c *ControlPlane) Stop() error {
	var errs []error
	for _, undo := range slices.Backward(c.undo) {
		errs = append(errs, undo())
	}
	c.undo = nil
	return errors.Join(errs...)
}

// RESTConfig is a client configuration with a certificate of system:masters. Each call returns a copy.
func (c *ControlPlane) RESTConfig() *rest.Config { return c.api.RESTConfig() }

// Kubeconfig is RESTConfig as a kubeconfig file's content.
func (c *ControlPlane) Kubeconfig() ([]byte, error) { return Kubeconfig(c.RESTConfig()) }

// APIServerPID is the process ID of kube-apiserver, for whoever wants to see what happens without it.
func (c *ControlPlane) APIServerPID() int { return c.api.PID() }

// EtcdEndpoint is the client URL of its etcd, where every write shows even while kube-apiserver is stopped.
func (c *ControlPlane) EtcdEndpoint() string { return c.etcd.Endpoint }

// Died is closed if kube-apiserver ends; Err then says why, unless Stop ended it.
func (c *ControlPlane) Died() <-chan struct{} { return c.api.Died() }

// Err is nil while kube-apiserver runs and after Stop.
func (c *ControlPlane) Err() error { return c.api.Err() }
