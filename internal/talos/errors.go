package talos

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A Class tells what an error means to whoever made the call. The zero Class is no class: the error is nil, or not from
// this package.
type Class int

// Classes of errors.
const (
	// Unreachable: nothing answers at the address, or the connection broke before an answer. Nothing is known of the
	// machine, and nothing was sent if the call was a write.
	Unreachable Class = 1 + iota
	// Timeout: the machine accepted the question and did not answer it in time. An etcd call behaves so for as long as
	// no member of etcd serves.
	Timeout
	// WrongCluster: who answers has another PKI. It is a blank machine or one of another cluster; Maintenance tells which.
	WrongCluster
	// CertificateRequired: asked as a blank machine, the machine wants a client certificate. It has a configuration.
	CertificateRequired
	// ClockSkew: one of the two certificates is not valid at the time of the other side.
	ClockSkew
	// NameMismatch: the machine is of our cluster, but its certificate is not valid for the address it was asked at.
	NameMismatch
	// FingerprintMismatch: the maintenance certificate is not the pinned one.
	FingerprintMismatch
	// BadCredentials: the credentials do not load, or one side refuses what the certificate of the other is made for.
	BadCredentials
	// Denied: the machine knows us, and our role may not do this.
	Denied
	// NotReady: the machine cannot do this yet, and may in a while.
	NotReady
	// NotFound: what was asked for does not exist.
	NotFound
	// AlreadyExists: what should be made exists already.
	AlreadyExists
	// NoLeader: etcd has no leader now.
	NoLeader
	// IsLearner: a member of etcd without a vote cannot answer this.
	IsLearner
	// LastMember: etcd refuses to lose its last started members.
	LastMember
	// EtcdUnhealthy: etcd refuses a change of its members because too few of them are connected.
	EtcdUnhealthy
	// Unimplemented: the machine does not know the call, in its version, role or mode.
	Unimplemented
	// Rejected: the machine, or this package, found the request invalid. Repeating it is useless.
	Rejected
	// Ambiguous: a write was sent and its outcome is not known. Look at the world before anything else.
	Ambiguous
	// Canceled: the caller gave up before anything was sent, or gave up on a read.
	Canceled
	// Other is any other failure.
	Other
)

var classNames = map[Class]string{
	Unreachable: "Unreachable", Timeout: "Timeout", WrongCluster: "WrongCluster", CertificateRequired: "CertificateRequired",
	ClockSkew: "ClockSkew", NameMismatch: "NameMismatch", FingerprintMismatch: "FingerprintMismatch",
	BadCredentials: "BadCredentials", Denied: "Denied", NotReady: "NotReady", NotFound: "NotFound",
	AlreadyExists: "AlreadyExists", NoLeader: "NoLeader", IsLearner: "IsLearner", LastMember: "LastMember",
	EtcdUnhealthy: "EtcdUnhealthy", Unimplemented: "Unimplemented", Rejected: "Rejected", Ambiguous: "Ambiguous",
	Canceled: "Canceled", Other: "Other",
}

// String is the name of the class, as a metric label.
func (c Class) String() string {
	if n, ok := classNames[c]; ok {
		return n
	}
	return "None"
}

// An Error is what a call failed with. Its text holds no secret and nothing that changes from one try to the next, so that
// it can be shown in a condition.
type Error struct {
	// Op is what was tried, as a verb phrase such as "list etcd members".
	Op string
	// Address of the machine as it was given.
	Address string
	// Class of the failure.
	Class Class
	// Err is the cause; the context's own error where the caller gave up or time ran out.
	Err error
}

// Error says what was tried, where, and why it failed.
func (e *Error) Error() string { return fmt.Sprintf("cannot %s at %q: %v", e.Op, e.Address, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of err, or zero if no Error is in its chain.
func ClassOf(err error) Class {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Class
	}
	return 0
}

// An attempt is what is known of a call besides the error it ended with.
type attempt struct {
	// write is true for a call that changes something.
	write bool
	// maintenance is true for a call to a blank machine's door.
	maintenance bool
	// sent is true once the request may have reached the machine.
	sent bool
	// timeout of the call.
	timeout time.Duration
	// cut is true if the caller's own deadline came before that.
	cut bool
}

// classify tells what a failed call means, and gives its cause a text that can be shown.
func classify(err error, a attempt) (Class, error) {
	code := status.Code(err)
	switch {
	case errors.Is(err, context.Canceled), code == codes.Canceled:
		return a.unlessAmbiguous(Canceled), fmt.Errorf("the call was given up: %w", context.Canceled)
	case errors.Is(err, context.DeadlineExceeded), code == codes.DeadlineExceeded:
		class := Timeout
		if !a.sent {
			class = Unreachable
		}
		within := a.timeout.String()
		if a.cut {
			within = "the time that was left"
		}
		return a.unlessAmbiguous(class), fmt.Errorf("no answer within %s: %w", within, context.DeadlineExceeded)
	}
	text := status.Convert(err).Message()
	if code == codes.Unavailable && !a.sent {
		// These words are ours, not the machine's, so there is nothing to scrub, and the fingerprints in them are wanted.
		return classOfConnection(text, a.maintenance), errors.New(tidy(text))
	}
	class := classOfAnswer(code, text)
	if class == Unreachable || class == Other {
		class = a.unlessAmbiguous(class)
	}
	return class, errors.New(tidy(scrub(text)))
}

// unlessAmbiguous is class, unless the outcome of a write cannot be told.
func (a attempt) unlessAmbiguous(class Class) Class {
	if a.write && a.sent {
		return Ambiguous
	}
	return class
}

// A rule gives a class to errors whose text contains any of the given fragments.
type rule struct {
	class     Class
	fragments []string
}

func match(rules []rule, text string) (Class, bool) {
	for _, r := range rules {
		for _, f := range r.fragments {
			if strings.Contains(text, f) {
				return r.class, true
			}
		}
	}
	return 0, false
}

// connectionRules tell failed connections apart: all of them have the code Unavailable and differ only in text.
var connectionRules = []rule{
	{FingerprintMismatch, []string{errFingerprint}},
	{ClockSkew, []string{"tls: expired certificate", "x509: certificate has expired or is not yet valid"}},
	{WrongCluster, []string{"x509: certificate signed by unknown authority", "tls: unknown certificate authority"}},
	{NameMismatch, []string{"x509: certificate is valid for", "x509: certificate is not valid for any names", "x509: cannot validate certificate for"}},
	{BadCredentials, []string{"tls: bad certificate", "tls: unsupported certificate", "x509: certificate specifies an incompatible key usage"}},
}

func classOfConnection(text string, maintenance bool) Class {
	if strings.Contains(text, "tls: certificate required") {
		if maintenance {
			return CertificateRequired
		}
		return WrongCluster
	}
	if c, ok := match(connectionRules, text); ok {
		return c
	}
	return Unreachable
}

// answerRules tell failures of etcd apart: Talos passes them on with the code Unknown, and with etcd's own text.
var answerRules = []rule{
	{IsLearner, []string{"rpc not supported for learner"}},
	{LastMember, []string{"not enough started members", "only one member"}},
	{EtcdUnhealthy, []string{"etcdserver: unhealthy cluster"}},
	{NotFound, []string{"etcdserver: member not found"}},
	{NoLeader, []string{"etcdserver: no leader", "etcdserver: request timed out", "etcdserver: leader changed", "etcdserver: not leader"}},
	{AlreadyExists, []string{"etcd data directory is not empty"}},
	{NotReady, []string{"no controlplane endpoints discovered yet", "error building etcd client TLS config", "bad leader transferee", "etcdserver: server stopped"}},
}

func classOfAnswer(code codes.Code, text string) Class {
	switch code {
	case codes.PermissionDenied, codes.Unauthenticated:
		return Denied
	case codes.FailedPrecondition, codes.ResourceExhausted, codes.Aborted:
		return NotReady
	case codes.NotFound:
		return NotFound
	case codes.AlreadyExists:
		return AlreadyExists
	case codes.Unimplemented:
		return Unimplemented
	case codes.InvalidArgument, codes.OutOfRange:
		return Rejected
	case codes.Unavailable:
		return Unreachable
	case codes.Unknown:
		if c, ok := match(answerRules, text); ok {
			return c
		}
	default:
	}
	return Other
}

// maxText is how much of a machine's own words is shown.
const maxText = 1024

// What is another thing at each try, and would make a condition change with every pass: the ports of a broken connection,
// and the time at which a certificate was found not to be valid.
var (
	brokenPorts = regexp.MustCompile(`\b(read|write) tcp \S+->\S+: `)
	judgedAt    = regexp.MustCompile(`\bcurrent time \S+ is (after|before) `)
)

// tidy makes text fit to be shown: without what differs at each try, without gRPC's wrapping, and not too long.
func tidy(text string) string {
	if inner, ok := strings.CutPrefix(text, "connection error: desc = "); ok {
		if s, err := strconv.Unquote(inner); err == nil {
			text = strings.TrimPrefix(s, "transport: ")
		}
	}
	text = brokenPorts.ReplaceAllString(text, "$1: ")
	text = judgedAt.ReplaceAllString(text, "it is $1 ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
