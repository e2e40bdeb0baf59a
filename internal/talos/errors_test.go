package talos

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestClassify(t *testing.T) {
	answered := attempt{sent: true, timeout: time.Second}
	wrote := attempt{sent: true, write: true, timeout: time.Second}
	cases := map[string]struct {
		reason  string
		err     error
		attempt attempt
		want    Class
	}{
		"NotAuthorized": {
			reason: "A lesser role, or a blank machine.",
			err:    status.Error(codes.PermissionDenied, "not authorized"), attempt: answered, want: Denied,
		},
		"BootstrapTooEarly": {
			reason: "The machine says itself that it is too early.",
			err:    status.Error(codes.FailedPrecondition, "bootstrap is not available yet"), attempt: wrote, want: NotReady,
		},
		"AnotherApply": {
			reason: "One configuration at a time.",
			err:    status.Error(codes.FailedPrecondition, "another apply configuration is already in progress"), attempt: wrote, want: NotReady,
		},
		"Bootstrapped": {
			reason: "There is etcd data.",
			err:    status.Error(codes.AlreadyExists, "etcd data directory is not empty"), attempt: wrote, want: AlreadyExists,
		},
		"BootstrappedMeanwhile": {
			reason: "The second check of the same directory has no code.",
			err:    status.Error(codes.Unknown, "etcd data directory is not empty"), attempt: wrote, want: AlreadyExists,
		},
		"Worker": {
			reason: "A worker has no etcd.",
			err:    status.Error(codes.Unimplemented, "etcd status is only available on control plane nodes"), attempt: answered, want: Unimplemented,
		},
		"BadConfig": {
			reason: "The configuration is not valid.",
			err:    status.Error(codes.InvalidArgument, "config not found"), attempt: wrote, want: Rejected,
		},
		"NoLeader": {
			reason: "etcd's own errors have no code, only a text.",
			err:    status.Error(codes.Unknown, "etcdserver: no leader"), attempt: answered, want: NoLeader,
		},
		"LeaveWithoutLeader": {
			reason: "etcd's text is found within Talos's, and says that nothing was done.",
			err:    status.Error(codes.Unknown, "failed to leave cluster: failed to remove member 1: etcdserver: no leader"), attempt: wrote, want: NoLeader,
		},
		"Learner": {
			reason: "A learner does not list members.",
			err:    status.Error(codes.Unknown, "etcdserver: rpc not supported for learner"), attempt: answered, want: IsLearner,
		},
		"LastMember": {
			reason: "etcd keeps its last member.",
			err:    status.Error(codes.Unknown, "failed to leave cluster: failed to remove member 1: etcdserver: re-configuration failed due to not enough started members"), attempt: wrote, want: LastMember,
		},
		"OneMember": {
			reason: "There is nobody to hand leadership to.",
			err:    status.Error(codes.Unknown, "failed to forfeit leadership: cannot forfeit leadership, only one member"), attempt: wrote, want: LastMember,
		},
		"UnhealthyCluster": {
			reason: "etcd's own guard of the quorum.",
			err:    status.Error(codes.Unknown, "failed to remove member: failed to remove member 1: etcdserver: unhealthy cluster"), attempt: wrote, want: EtcdUnhealthy,
		},
		"MemberGone": {
			reason: "The member is not in the list.",
			err:    status.Error(codes.NotFound, "failed to remove member 1: etcdserver: member not found"), attempt: wrote, want: NotFound,
		},
		"NoEndpoints": {
			reason: "The machine does not know its peers yet.",
			err:    status.Error(codes.Unknown, "no controlplane endpoints discovered yet"), attempt: answered, want: NotReady,
		},
		"ReadHangs": {
			reason: "Without a member that serves, etcd's client waits for ever.",
			err:    status.Error(codes.DeadlineExceeded, "context deadline exceeded"), attempt: answered, want: Timeout,
		},
		"WriteHangs": {
			reason: "It may have been done.",
			err:    status.Error(codes.DeadlineExceeded, "context deadline exceeded"), attempt: wrote, want: Ambiguous,
		},
		"WriteNeverSent": {
			reason: "It was certainly not done.",
			err:    context.DeadlineExceeded, attempt: attempt{write: true, timeout: time.Second}, want: Unreachable,
		},
		"WriteCut": {
			reason: "The connection broke after the write was sent.",
			err:    status.Error(codes.Unavailable, "error reading from server: EOF"), attempt: wrote, want: Ambiguous,
		},
		"ReadCut": {
			reason: "The connection broke before a read was answered.",
			err:    status.Error(codes.Unavailable, "error reading from server: EOF"), attempt: answered, want: Unreachable,
		},
		"WriteCanceled": {
			reason: "The caller gave up on a write that was sent.",
			err:    status.Error(codes.Canceled, "context canceled"), attempt: wrote, want: Ambiguous,
		},
		"ReadCanceled": {
			reason: "The caller gave up on a read.",
			err:    status.Error(codes.Canceled, "context canceled"), attempt: answered, want: Canceled,
		},
		"UnknownFailureOfWrite": {
			reason: "A failure that is not understood may have come after the fact.",
			err:    status.Error(codes.Unknown, "failed to leave cluster: failed to stop etcd service: boom"), attempt: wrote, want: Ambiguous,
		},
		"UnknownFailureOfRead": {
			reason: "Nothing to look at again.",
			err:    status.Error(codes.Internal, "boom"), attempt: answered, want: Other,
		},
		"WordsOfTLSInAnAnswer": {
			reason: "What a machine says in an answer is not what the connection says.",
			err:    status.Error(codes.Unavailable, "x509: certificate signed by unknown authority"), attempt: answered, want: Unreachable,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, cause := classify(tc.err, tc.attempt)
			if got != tc.want {
				t.Errorf("\n%s\nclass: got %v, want %v", tc.reason, got, tc.want)
			}
			if cause == nil || cause.Error() == "" {
				t.Errorf("\n%s\nthere is no cause", tc.reason)
			}
		})
	}
}

func TestErrorWrapsTheContext(t *testing.T) {
	for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Canceled} {
		want := map[codes.Code]error{codes.DeadlineExceeded: context.DeadlineExceeded, codes.Canceled: context.Canceled}[code]
		_, cause := classify(status.Error(code, "text"), attempt{})
		if err := error(&Error{Err: cause}); !errors.Is(err, want) {
			t.Errorf("%v does not wrap %v", err, want)
		}
	}
}

func TestClassOfForeignErrors(t *testing.T) {
	if got := ClassOf(nil); got != 0 {
		t.Errorf("class of nil: got %v, want none", got)
	}
	if got := ClassOf(errors.New("other")); got != 0 {
		t.Errorf("class of a foreign error: got %v, want none", got)
	}
	seen := map[string]bool{}
	for c := Unreachable; c <= Other; c++ {
		if seen[c.String()] || c.String() == "None" {
			t.Errorf("class %d has no name of its own: %q", int(c), c)
		}
		seen[c.String()] = true
	}
}

// What a write did cannot be told once it was sent and not answered.
func TestUnansweredWriteIsAmbiguous(t *testing.T) {
	ca := newAuthority(t)
	cases := map[string]struct {
		reason string
		end    func(m *machine, cancel func())
		class  Class
	}{
		"Cut":      {reason: "The machine goes away.", end: func(m *machine, _ func()) { m.cut() }, class: Ambiguous},
		"Canceled": {reason: "The caller gives up.", end: func(_ *machine, cancel func()) { cancel() }, class: Ambiguous},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := start(t, ca.configured(t))
			arrived := make(chan struct{})
			m.unary = func(ctx context.Context, _ string, _ any) (any, error) {
				close(arrived)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- pool(t, Options{}).Machine(m.address(), ca.client(t)).LeaveEtcd(ctx) }()
			<-arrived
			tc.end(m, cancel)
			if err := <-done; ClassOf(err) != tc.class {
				t.Errorf("\n%s\nclass: got %v, want %v: %v", tc.reason, ClassOf(err), tc.class, err)
			}
		})
	}

	t.Run("Deadline", func(t *testing.T) {
		m := start(t, ca.configured(t))
		m.unary = func(ctx context.Context, method string, req any) (any, error) {
			if method == "Version" {
				return versionTag(ctx, method, req)
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c := pool(t, Options{}).Machine(m.address(), ca.client(t))
		if _, err := c.Version(t.Context()); err != nil { // The connection is up before the clock runs.
			t.Fatal(err)
		}
		if err := c.WithTimeouts(50*time.Millisecond, 0).Reboot(t.Context()); ClassOf(err) != Ambiguous {
			t.Errorf("class: got %v, want %v: %v", ClassOf(err), Ambiguous, err)
		}
	})
}

// A read that times out takes its connection out of use, but must not break off a write that is under way on it: a leave
// takes minutes, in which other questions may well hang.
func TestFailedReadSparesTheWriteUnderWay(t *testing.T) {
	ca := newAuthority(t)
	m := start(t, ca.configured(t))
	arrived, finish := make(chan struct{}), make(chan struct{})
	m.unary = func(ctx context.Context, method string, _ any) (any, error) {
		if method == "EtcdLeaveCluster" {
			close(arrived)
			<-finish
			return &machineapi.EtcdLeaveClusterResponse{}, nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c := pool(t, Options{}).Machine(m.address(), ca.client(t))
	done := make(chan error, 1)
	go func() { done <- c.LeaveEtcd(t.Context()) }()
	<-arrived
	if _, err := c.WithTimeouts(50*time.Millisecond, 0).EtcdMembers(t.Context()); ClassOf(err) != Timeout {
		t.Fatalf("class of the read: got %v, want %v: %v", ClassOf(err), Timeout, err)
	}
	close(finish)
	if err := <-done; err != nil {
		t.Errorf("the leave was broken off: %v", err)
	}
}

func TestScrub(t *testing.T) {
	const pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----"
	cases := map[string]struct{ reason, text, want string }{
		"PEM":           {"A key in PEM.", "bad " + pem + " here", "bad *** here"},
		"Base64":        {"A secretbox secret or a PEM in base64.", "got Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmE9 there", "got *** there"},
		"Token":         {"A bootstrap token.", "token abcdef.0123456789abcdef is used", "token *** is used"},
		"YAMLValue":     {"The YAML decoder quotes what it cannot take.", "cannot unmarshal !!str `hunter2` into int", "cannot unmarshal !!str *** into int"},
		"UnknownKeys":   {"The loader lists unknown keys with their values.", "unknown keys found during decoding:\nmachine:\n    password: hunter2\n    list:\n        - hunter2\n", "unknown keys found during decoding:\nmachine:\n    password: ***\n    list:\n        - ***\n"},
		"Image":         {"An image is no secret.", `kubelet image is not valid: "ghcr.io/siderolabs/kubelet:v1.99.0"`, `kubelet image is not valid: "ghcr.io/siderolabs/kubelet:v1.99.0"`},
		"UUID":          {"A UUID is no secret.", "machine 4c4c4544-0042-3510-8052-b4c04f4d3132", "machine 4c4c4544-0042-3510-8052-b4c04f4d3132"},
		"LongPath":      {"A path is no secret.", "open /var/lib/kubelet/seccomp/profiles/some/thing/deep: no", "open /var/lib/kubelet/seccomp/profiles/some/thing/deep: no"},
		"PlainSentence": {"Most texts are left alone.", "install instructions are required in \"metal\" mode", "install instructions are required in \"metal\" mode"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := scrub(tc.text); got != tc.want {
				t.Errorf("\n%s\ngot  %q\nwant %q", tc.reason, got, tc.want)
			}
		})
	}
}

// What a machine quotes of a configuration must not come through in an error, and its words must not be endless.
func TestNoSecretInErrors(t *testing.T) {
	ca := newAuthority(t)
	creds := ca.client(t)
	m := start(t, ca.configured(t))
	m.unary = func(context.Context, string, any) (any, error) {
		return nil, status.Error(codes.InvalidArgument, "cannot use "+string(creds.Key)+strings.Repeat(" and so on", 1000))
	}
	_, err := pool(t, Options{}).Machine(m.address(), creds).ApplyConfig(t.Context(), []byte("x"), Auto)
	if ClassOf(err) != Rejected {
		t.Fatalf("class: got %v, want %v: %v", ClassOf(err), Rejected, err)
	}
	if strings.Contains(err.Error(), "PRIVATE KEY") {
		t.Errorf("the error holds the key: %v", err)
	}
	if got := len(err.Error()); got > maxText+100 {
		t.Errorf("the error is %d bytes long", got)
	}
}

// What is shown becomes a condition, and a condition that changes with every pass wakes everybody who watches it.
func TestTidyDropsWhatChanges(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"Ports": {
			text: "read tcp 127.0.0.1:4242->127.0.0.1:50000: connection reset by peer",
			want: "read: connection reset by peer",
		},
		"Expired": {
			text: "x509: certificate has expired or is not yet valid: current time 2026-11-30T09:47:58Z is after 2026-11-30T08:47:58Z",
			want: "x509: certificate has expired or is not yet valid: it is after 2026-11-30T08:47:58Z",
		},
		"NotYetValid": {
			text: "x509: certificate has expired or is not yet valid: current time 2026-11-30T09:47:58+02:00 is before 2027-01-01T00:00:00Z",
			want: "x509: certificate has expired or is not yet valid: it is before 2027-01-01T00:00:00Z",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tidy(tc.text); got != tc.want {
				t.Errorf("tidy(%q) = %q, want %q", tc.text, got, tc.want)
			}
		})
	}
}
