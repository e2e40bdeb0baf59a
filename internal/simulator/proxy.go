package simulator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	// proxyFromKey marks a call that was forwarded once; it is never forwarded again.
	proxyFromKey = "proxyfrom"
	// proxyBackoff is the longest time that a machine waits before it tries a lost connection to another one again.
	proxyBackoff = 15 * time.Second
)

// targets are the nodes that a call's metadata names.
type targets struct {
	nodes []string
	many  bool  // the `nodes` key: replies are merged, failures are messages
	err   error // the metadata makes no sense
}

// targets reads the routing metadata. Maintenance mode ignores it, and so does a call that was forwarded already.
func (a *api) targets(ctx context.Context) targets {
	md, ok := metadata.FromIncomingContext(ctx)
	if !ok || a.mode == apiMaintenance || len(md.Get(proxyFromKey)) > 0 {
		return targets{}
	}
	if nodes := md.Get("nodes"); len(nodes) > 0 {
		return targets{nodes: nodes, many: true}
	}
	nodes := md.Get("node")
	if len(nodes) > 1 {
		return targets{nodes: nodes, err: status.Error(codes.InvalidArgument, "node metadata must be single-valued")}
	}
	return targets{nodes: nodes}
}

// manyServices are those whose replies can be merged.
var manyServices = []string{machineService, clusterService, inspectService, storageService, timeService}

// route says whether a call is answered here, or why it cannot be answered at all.
func (a *api) route(method string, t targets) (local bool, err error) {
	if t.err != nil || len(t.nodes) == 0 {
		return true, t.err
	}
	for _, node := range t.nodes {
		if node == "" || isHostPort(node) {
			return false, status.Errorf(codes.Internal, "invalid target %q", node)
		}
	}
	if t.many && !hasPrefix(method, manyServices) {
		return false, status.Errorf(codes.InvalidArgument, "one-2-many proxying is not supported for method %s", method)
	}
	if a.sys.canForward() {
		return false, nil
	}
	if len(t.nodes) == 1 && a.sys.isSelf(t.nodes[0]) {
		return true, nil
	}
	return false, status.Error(codes.PermissionDenied, "no request forwarding")
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

func isHostPort(s string) bool {
	_, _, err := net.SplitHostPort(s)
	return err == nil
}

// canForward is true on control planes: only they can issue themselves the certificate that forwarding takes.
func (s *system) canForward() bool {
	cfg := s.activeConfig()
	return cfg != nil && cfg.Machine() != nil && cfg.Machine().Type().IsControlPlane()
}

func (s *system) isSelf(target string) bool {
	return target == s.m.spec.Address.String() || target == s.hostname()
}

// backends are the connections to other machines that one boot keeps.
type backends struct {
	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

func (s *system) backend(target string) (*grpc.ClientConn, error) {
	s.backends.mu.Lock()
	defer s.backends.mu.Unlock()

	if conn, ok := s.backends.conns[target]; ok {
		return conn, nil
	}
	cfg := s.activeConfig()
	cert, err := impersonatorCertificate(cfg.Machine().Security().IssuingCA(), s.now())
	if err != nil {
		return nil, err
	}
	host := s.resolve(target)
	creds := credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert}, RootCAs: acceptedCAs(cfg), ServerName: target,
	})
	retry := backoff.DefaultConfig
	retry.MaxDelay = s.scaled(proxyBackoff)
	retry.BaseDelay = min(retry.BaseDelay, retry.MaxDelay)
	conn, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(host, strconv.Itoa(constants.ApidPort)),
		grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(frameCodec{}), grpc.MaxCallRecvMsgSize(constants.GRPCMaxMessageSize)),
	)
	if err != nil {
		return nil, fmt.Errorf("cannot reach %q: %w", target, err)
	}
	s.backends.conns[target] = conn
	return conn, nil
}

// resolve turns a node's name into its address, as the members' host entries do on Talos.
func (s *system) resolve(target string) string {
	if _, err := netip.ParseAddr(target); err == nil {
		return target
	}
	for _, a := range s.m.fleet.discovery.list(s.clusterID()) {
		if a.spec.Hostname == target && len(a.spec.Addresses) > 0 {
			return a.spec.Addresses[0].String()
		}
	}
	return target
}

func (b *backends) close() {
	b.mu.Lock()
	defer b.mu.Unlock()

	for _, conn := range b.conns {
		_ = conn.Close()
	}
	b.conns = map[string]*grpc.ClientConn{}
}

// outgoing is the context of a forwarded call: the caller's metadata without the routing, with the caller's roles.
func (a *api) outgoing(ctx context.Context) context.Context {
	in, _ := metadata.FromIncomingContext(ctx)
	md := metadata.MD{}
	for key, values := range in {
		switch {
		case key == "node", key == "nodes", key == rolesMetadataKey, strings.HasPrefix(key, ":"), key == "content-type", key == "user-agent", key == "te":
		default:
			md[key] = values
		}
	}
	md.Set(rolesMetadataKey, sortedRoles(rolesOf(ctx))...)
	md.Set(proxyFromKey, a.sys.m.spec.Address.String())
	return metadata.NewOutgoingContext(ctx, md)
}

// lagging reports the fault that keeps calls from being forwarded to a machine that has just come up.
func (a *api) lagging(target string) error {
	m := a.sys.m.fleet.byAddress(a.sys.resolve(target))
	if m == nil || !m.faults.has(FaultProxyLag) {
		return nil
	}
	if since := m.apiSince(); time.Since(since) < a.sys.scaled(proxyBackoff) {
		return status.Errorf(codes.Unavailable, "connection error: desc = \"transport: Error while dialing: dial tcp %s: connect: connection refused\"",
			net.JoinHostPort(target, strconv.Itoa(constants.ApidPort)))
	}
	return nil
}

func (a *api) callNode(ctx context.Context, method string, payload []byte, target string) ([]byte, error) {
	if err := a.lagging(target); err != nil {
		return nil, err
	}
	conn, err := a.sys.backend(target)
	if err != nil {
		return nil, err
	}
	reply := &frame{}
	if err := conn.Invoke(a.outgoing(ctx), method, &frame{payload}, reply); err != nil {
		return nil, err
	}
	return reply.payload, nil
}

// forwardUnary passes a unary call on. To one node, the reply and the error come back as they are; to many, the replies
// are concatenated in the order of their arrival, each with its node's name, and the call itself never fails.
func (a *api) forwardUnary(ctx context.Context, method string, req any, t targets) (any, error) {
	message, ok := req.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "cannot forward %s", method)
	}
	payload, err := proto.Marshal(message)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "cannot forward %s: %v", method, err)
	}
	if !t.many {
		reply, err := a.callNode(ctx, method, payload, t.nodes[0])
		return &frame{reply}, err
	}
	replies := make(chan []byte, len(t.nodes))
	failures := make(chan error, len(t.nodes))
	for _, node := range t.nodes {
		go func() {
			reply, err := a.callNode(ctx, method, payload, node)
			if err == nil {
				reply, err = withNode(reply, node)
			} else {
				reply, err = failedNode(node, err, false)
			}
			replies <- reply
			failures <- err
		}()
	}
	all := []byte{}
	for range t.nodes {
		all = append(all, <-replies...)
		if err := <-failures; err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	return &frame{all}, nil
}

// forwardStream passes a stream on, frame by frame in both directions.
func (a *api) forwardStream(ss *observedStream, method string, t targets) error {
	ctx, cancel := context.WithCancel(ss.Context())
	defer cancel()

	streams := make([]grpc.ClientStream, 0, len(t.nodes))
	send := sync.Mutex{}
	for _, node := range t.nodes {
		cs, err := a.openNode(ctx, method, node)
		if err == nil {
			streams = append(streams, cs)
			continue
		}
		if !t.many {
			return err
		}
		if err := sendFailure(ss, &send, node, err); err != nil {
			return err
		}
		streams = append(streams, nil)
	}
	go pumpRequests(ss, streams)

	results := make(chan error, len(streams))
	for i, cs := range streams {
		if cs == nil {
			results <- nil
			continue
		}
		go func() { results <- pumpReplies(ss, &send, cs, t.nodes[i], t.many) }()
	}
	var err error
	for range streams {
		err = errors.Join(err, <-results)
	}
	if len(streams) == 1 || err == nil {
		return unjoin(err)
	}
	return status.Error(codes.Internal, err.Error())
}

// unjoin takes a single error out of its wrapping, so that its status reaches the caller unchanged.
func unjoin(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // looks at the wrapper itself
		if errs := joined.Unwrap(); len(errs) == 1 {
			return errs[0]
		}
	}
	return err
}

func (a *api) openNode(ctx context.Context, method, node string) (grpc.ClientStream, error) {
	if err := a.lagging(node); err != nil {
		return nil, err
	}
	conn, err := a.sys.backend(node)
	if err != nil {
		return nil, err
	}
	return conn.NewStream(a.outgoing(ctx), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
}

func pumpRequests(ss grpc.ServerStream, streams []grpc.ClientStream) {
	for {
		f := &frame{}
		err := ss.RecvMsg(f)
		for _, cs := range streams {
			switch {
			case cs == nil:
			case err == nil:
				_ = cs.SendMsg(f) // a broken stream shows in its replies
			case errors.Is(err, io.EOF):
				_ = cs.CloseSend()
			}
		}
		if err != nil {
			return
		}
	}
}

func pumpReplies(ss grpc.ServerStream, send *sync.Mutex, cs grpc.ClientStream, node string, many bool) error {
	for {
		f := &frame{}
		err := cs.RecvMsg(f)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && many:
			return sendFailure(ss, send, node, err)
		case err != nil:
			return err
		}
		if many {
			if f.payload, err = withMetadata(f.payload, nodeMetadata(node)); err != nil {
				return err
			}
		}
		send.Lock()
		err = ss.SendMsg(f)
		send.Unlock()
		if err != nil {
			return err
		}
	}
}

func sendFailure(ss grpc.ServerStream, send *sync.Mutex, node string, failure error) error {
	payload, err := failedNode(node, failure, true)
	if err != nil {
		return err
	}
	send.Lock()
	defer send.Unlock()
	return ss.SendMsg(&frame{payload})
}

type failure struct {
	text  string
	proto *rpcstatus.Status
}

// statusProto is how a failed node's error is told inside a message.
func statusProto(err error) failure {
	return failure{text: err.Error(), proto: status.Convert(err).Proto()}
}
