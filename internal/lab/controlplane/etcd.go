package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"time"
)

// EtcdOptions say how to run a single etcd.
type EtcdOptions struct {
	// Binary is the path of etcd.
	Binary string

	// Dir keeps its data and its log.
	Dir string

	// Client and Peer are the loopback addresses that it listens on, in plain HTTP.
	Client, Peer netip.AddrPort
}

// Etcd is one etcd server, a cluster of its own.
type Etcd struct {
	*Process

	// Endpoint is its client URL.
	Endpoint string
}

// StartEtcd starts etcd and waits until it is healthy. Data already in Dir is taken up again.
func StartEtcd(ctx context.Context, o EtcdOptions) (*Etcd, error) {
	if err := onlyLoopback(o.Client, o.Peer); err != nil {
		return nil, fmt.Errorf("cannot start etcd: %w", err)
	}
	client, peer := "http://"+o.Client.String(), "http://"+o.Peer.String()
	p, err := StartProcess(Command{
		Name: "etcd",
		Path: o.Binary,
		Log:  filepath.Join(o.Dir, "etcd.log"),
		Args: []string{
			"--name=lab",
			"--data-dir=" + filepath.Join(o.Dir, "data"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=lab=" + peer,
			// A lab has nothing to lose in a power cut, and syncing is most of what a small etcd waits for.
			"--unsafe-no-fsync",
			"--log-level=warn",
		},
	})
	if err != nil {
		return nil, err
	}
	e := &Etcd{Process: p, Endpoint: client}
	if err := p.await(ctx, func(ctx context.Context) error { return getOK(ctx, http.DefaultClient, client+"/health") }); err != nil {
		return nil, abandon(p, err)
	}
	return e, nil
}

// probeTimeout bounds one question to a starting program, so that one that accepts and says nothing is asked again.
const probeTimeout = 2 * time.Second

func getOK(ctx context.Context, c *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // the status is all that is wanted
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}

// abandon stops what did not get ready and returns why it did not.
func abandon(p *Process, why error) error {
	if err := p.Kill(); err != nil {
		return fmt.Errorf("%w (and %w)", why, err)
	}
	return why
}

// onlyLoopback refuses addresses that other machines could reach.
func onlyLoopback(addresses ...netip.AddrPort) error {
	for _, a := range addresses {
		if !a.Addr().IsLoopback() {
			return fmt.Errorf("%q is not a loopback address", a)
		}
	}
	return nil
}
