package simulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state"
	cosiserver "github.com/cosi-project/runtime/pkg/state/protobuf/server"
	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/inspect"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// An apiMode is how a machine's API treats its callers.
type apiMode int

const (
	// apiMaintenance serves a machine without configuration: server-only TLS, everybody reads.
	apiMaintenance apiMode = 1 + iota
	// apiRunning serves a configured machine: mutual TLS, roles from the certificate, forwarding.
	apiRunning
)

// apiStopGrace is how long unary calls may still run when the API stops.
const apiStopGrace = 2 * time.Second

// An api is one listener with its server. A machine that changes its mode gets a new one.
type api struct {
	sys    *system
	mode   apiMode
	since  time.Time
	server *grpc.Server
	gate   *gate
	ctx    context.Context //nolint:containedctx // ends when the API begins to stop; streams end with it
	cancel context.CancelFunc
	done   chan struct{}
}

// startAPI opens the machine's API port in a mode.
func (s *system) startAPI(mode apiMode) (*api, error) {
	config, err := s.tlsConfig(mode)
	if err != nil {
		return nil, fmt.Errorf("cannot start API: %w", err)
	}
	g, err := newGate(s.m)
	if err != nil {
		return nil, fmt.Errorf("cannot start API: %w", err)
	}
	a := &api{sys: s, mode: mode, since: time.Now(), gate: g, done: make(chan struct{})}
	a.ctx, a.cancel = context.WithCancel(s.ctx)
	a.server = grpc.NewServer(
		grpc.Creds(credentials.NewTLS(config)),
		grpc.ForceServerCodecV2(frameCodec{}),
		grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize),
		grpc.UnaryInterceptor(a.unary),
		grpc.StreamInterceptor(a.stream),
	)
	a.register()
	go func() {
		defer close(a.done)
		_ = a.server.Serve(g) // ends when the API stops
	}()
	return a, nil
}

// register adds the services that this version has in this mode. What is not registered is Unimplemented.
func (a *api) register() {
	s := a.sys
	resources := state.Filter(s.cosi, s.defs.accessPolicy)
	machine.RegisterMachineServiceServer(a.server, s)
	storage.RegisterStorageServiceServer(a.server, &storageServer{s: s})
	cosiv1alpha1.RegisterStateServer(a.server, cosiserver.NewState(resources))
	if s.is112() && a.mode == apiMaintenance {
		return
	}
	clusterapi.RegisterClusterServiceServer(a.server, &clusterServer{s: s})
	inspect.RegisterInspectServiceServer(a.server, &inspect.UnimplementedInspectServiceServer{})
	timeapi.RegisterTimeServiceServer(a.server, &timeServer{s: s})
	if s.is112() {
		return
	}
	machine.RegisterImageServiceServer(a.server, &imageServer{s: s})
	machine.RegisterDebugServiceServer(a.server, &machine.UnimplementedDebugServiceServer{})
	machine.RegisterLifecycleServiceServer(a.server, &lifecycleServer{s: s})
}

// stop closes the port at once, ends the streams and gives unary calls a moment to finish.
func (a *api) stop() {
	a.cancel()
	_ = a.gate.Close()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		a.server.GracefulStop()
	}()
	timer := time.NewTimer(apiStopGrace)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
		a.server.Stop()
		<-stopped
	}
	<-a.done
}

// kill drops everything, as a loss of power does.
func (a *api) kill() {
	a.cancel()
	_ = a.gate.Close()
	a.gate.dropConnections()
	a.server.Stop()
	<-a.done
}

// roles are what the caller may do here.
func (a *api) roles(ctx context.Context) role.Set {
	if a.mode == apiMaintenance {
		return role.MakeSet(role.Reader)
	}
	return certificateRoles(ctx)
}

// admit decides about a call that is answered here.
func (a *api) admit(method string, roles role.Set) error {
	if a.mode == apiMaintenance && a.sys.is112() {
		return refuseMaintenance112(method)
	}
	if !allowed(method, roles) {
		return errNotAuthorized
	}
	return nil
}

// maintenance112 are the methods of Talos 1.12's maintenance server; true means that it answers, false that it names itself.
var maintenance112 = map[string]bool{
	machineService + "ApplyConfiguration": true,
	machineService + "Version":            false,
	machineService + "Upgrade":            false,
	machineService + "Reset":              false,
	machineService + "MetaWrite":          false,
	machineService + "MetaDelete":         false,
	storageService + "Disks":              true,
	storageService + "BlockDeviceWipe":    true,
}

func refuseMaintenance112(method string) error {
	if strings.HasPrefix(method, cosiService) {
		return nil
	}
	answers, known := maintenance112[method]
	switch {
	case answers:
		return nil
	case known:
		return status.Error(codes.Unimplemented, "API is not implemented in maintenance mode")
	default:
		return status.Errorf(codes.Unimplemented, "method %s not implemented", method[strings.LastIndex(method, "/")+1:])
	}
}

// unary sees every unary call: it records it, forwards it where its metadata says, and refuses what the roles do not admit.
func (a *api) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	roles := a.roles(ctx)
	ctx = withRoles(ctx, roles)
	targets := a.targets(ctx)
	rec := a.record(ctx, info.FullMethod, roles, targets.nodes)
	a.detail(rec, req)

	resp, err := func() (any, error) {
		local, err := a.route(info.FullMethod, targets)
		switch {
		case err != nil:
			return nil, err
		case !local:
			return a.forwardUnary(ctx, info.FullMethod, req, targets)
		}
		if err := a.admit(info.FullMethod, roles); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}()
	err = asStatus(err)
	a.finish(rec, err)
	return resp, err
}

// stream does for streams what unary does for unary calls.
func (a *api) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(ss.Context())
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)()

	roles := a.roles(ctx)
	targets := a.targets(ctx)
	rec := a.record(ctx, info.FullMethod, roles, targets.nodes)
	wrapped := &observedStream{ServerStream: ss, ctx: withRoles(ctx, roles), received: func(m any) { a.detail(rec, m) }}

	err := func() error {
		local, err := a.route(info.FullMethod, targets)
		switch {
		case err != nil:
			return err
		case !local:
			return a.forwardStream(wrapped, info.FullMethod, targets)
		}
		if err := a.admit(info.FullMethod, roles); err != nil {
			return err
		}
		return handler(srv, wrapped)
	}()
	if a.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = status.Error(codes.Unavailable, "the server is shutting down")
		if info.FullMethod == machineService+"Events" {
			err = nil // Talos ends this stream in peace
		}
	}
	err = asStatus(err)
	a.finish(rec, err)
	return err
}

func (a *api) record(ctx context.Context, method string, roles role.Set, nodes []string) *RPC {
	caller := ""
	if p, ok := peer.FromContext(ctx); ok {
		caller = p.Addr.String()
	}
	return a.sys.m.fleet.rpcs.begin(RPC{
		Time: time.Now(), Machine: a.sys.m.spec.Name, Method: method, Peer: caller, Roles: sortedRoles(roles),
		Mutating: Mutating(method), Forwarded: nodes,
	})
}

func (a *api) detail(rec *RPC, req any) {
	if d := callDetail(req); d != "" {
		a.sys.m.fleet.rpcs.amend(rec, func(r *RPC) { r.Detail = d })
	}
}

func (a *api) finish(rec *RPC, err error) {
	var is RPC
	a.sys.m.fleet.rpcs.amend(rec, func(r *RPC) {
		r.Done = true
		r.Code = status.Code(err)
		if err != nil {
			r.Message = status.Convert(err).Message()
		}
		is = *r
	})
	if tell := a.sys.m.fleet.opts.Answering; tell != nil && is.Mutating && is.Code == codes.OK && len(is.Forwarded) == 0 {
		tell(is)
	}
}

// asStatus turns a handler's error into what the caller will see, so that the log says the same.
func asStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}

type observedStream struct {
	grpc.ServerStream
	ctx      context.Context //nolint:containedctx // a stream carries its own context
	received func(any)
}

func (o *observedStream) Context() context.Context { return o.ctx }

func (o *observedStream) RecvMsg(m any) error {
	if err := o.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	o.received(m)
	return nil
}

var _ net.Listener = (*gate)(nil)
