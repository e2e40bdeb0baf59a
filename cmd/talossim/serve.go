package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
	"github.com/maesh/provider-ichor/internal/simulator"
	"github.com/maesh/provider-ichor/internal/simulator/control"
)

// A serve runs a fleet until it is interrupted.
type serve struct {
	name       string
	machines   *int
	subnet     *string
	scale      *float64
	kubernetes *bool
	light      *bool
	dir        *string
	version    *string
	installed  *bool
	quiet      *bool
	tell       *string
}

func newServe(app *kingpin.Application) *serve {
	cmd := app.Command("serve", "Run a fleet until interrupted.").Default()
	return &serve{
		name:       cmd.FullCommand(),
		machines:   cmd.Flag("machines", "How many machines to start, called m1, m2 and so on.").Default("3").Int(),
		subnet:     cmd.Flag("subnet", "A /24 within 127.0.0.0/8; machines get its addresses from .11 on.").Default("127.10.0.0/24").String(),
		scale:      cmd.Flag("scale", "Factor that divides Talos's waits; 1 is real time.").Default("20").Float64(),
		kubernetes: cmd.Flag("kubernetes", "Run a real Kubernetes API for each bootstrapped cluster.").Bool(),
		light:      cmd.Flag("light", "Leave out what costs memory with hundreds of machines.").Bool(),
		dir:        cmd.Flag("dir", "Directory of the machines' disks; empty means a temporary one.").String(),
		version:    cmd.Flag("talos-version", "Version on the machines' boot media.").Default(simulator.DefaultTalosVersion).String(),
		installed:  cmd.Flag("installed", "Talos is on the machines' disks already, without a configuration.").Bool(),
		quiet:      cmd.Flag("quiet", "Do not log what the machines do.").Bool(),
		tell:       cmd.Flag("tell", "URL that each call that changed a machine is posted to before it is answered; the answer waits for that of the URL.").String(),
	}
}

func (s *serve) run(ctx context.Context, address string, stdout, stderr io.Writer) (err error) {
	opts, err := s.options(ctx, stderr)
	if err != nil {
		return err
	}
	listener, err := listenLoopback(ctx, address)
	if err != nil {
		return err
	}
	fleet, err := simulator.NewFleet(opts)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, fleet.Close()) }()

	for i := range *s.machines {
		m, err := fleet.AddMachine(simulator.MachineSpec{Name: fmt.Sprintf("m%d", i+1), TalosVersion: *s.version, Installed: *s.installed})
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		fmt.Fprintf(stdout, "%s %s %s\n", m.Name(), m.Address(), m.UUID())
	}
	fmt.Fprintf(stdout, "control http://%s\n", listener.Addr())
	return serveHTTP(ctx, listener, control.Handler(fleet))
}

func (s *serve) options(ctx context.Context, stderr io.Writer) (simulator.Options, error) {
	subnet, err := netip.ParsePrefix(*s.subnet)
	if err != nil {
		return simulator.Options{}, fmt.Errorf("cannot read --subnet: %w", err)
	}
	if *s.scale <= 0 {
		return simulator.Options{}, fmt.Errorf("--scale is %v, it must be above 0", *s.scale)
	}
	if *s.machines < 0 {
		return simulator.Options{}, fmt.Errorf("--machines is %d, it must not be negative", *s.machines)
	}
	opts := simulator.Options{Dir: *s.dir, Subnet: subnet, Scale: *s.scale, Kubernetes: *s.kubernetes, Light: *s.light}
	if !*s.quiet {
		opts.Log = slog.New(slog.NewTextHandler(stderr, nil))
	}
	if *s.tell != "" {
		opts.Answering = teller(ctx, *s.tell)
	}
	if *s.kubernetes {
		if opts.Binaries, err = controlplane.EnsureBinaries(ctx, stderr); err != nil {
			return opts, err
		}
	}
	return opts, nil
}

// teller posts calls to a URL. One that nobody listens to is not told: the machines go on.
func teller(ctx context.Context, to string) func(simulator.RPC) {
	return func(r simulator.RPC) {
		body, err := json.Marshal(r)
		if err != nil {
			return
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
		if err != nil {
			return
		}
		if answer, err := http.DefaultClient.Do(req); err == nil {
			_ = answer.Body.Close() // That it came is all.
		}
	}
}

func listenLoopback(ctx context.Context, address string) (net.Listener, error) {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("cannot read --control: %w", err)
	}
	if !addr.Addr().IsLoopback() {
		return nil, fmt.Errorf("--control is %q, it must be a loopback address", address)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for control: %w", err)
	}
	return listener, nil
}

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve control: %w", err)
	}
	return nil
}
