package talos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// A Client is the door to one machine, at its address. It holds no connection of its own, so it needs no closing and may
// be made anew for every use. It is safe for concurrent use.
type Client struct {
	pool        *Pool
	address     string
	key         connKey
	credentials Credentials
	identity    string
	request     time.Duration
	dial        time.Duration
}

// Address of the machine, as it was given.
func (c *Client) Address() string { return c.address }

// WithTimeouts returns the same door with other deadlines, of a call and of a connection. Zero leaves one as it is.
func (c *Client) WithTimeouts(request, dial time.Duration) *Client {
	d := *c
	if request > 0 {
		d.request = request
	}
	if dial > 0 {
		d.dial = dial
	}
	return &d
}

func (c *Client) tlsConfig() (*tls.Config, error) {
	if c.key.maintenance {
		return maintenanceTLS(c.key.trust)
	}
	host, _, err := net.SplitHostPort(c.key.endpoint)
	if err != nil {
		return nil, fmt.Errorf("the address is not usable: %w", err)
	}
	return mutualTLS(c.credentials, host)
}

type sentFlag = atomic.Bool

// read makes a call that changes nothing.
func (c *Client) read(ctx context.Context, op string, f func(context.Context, *conn) error) error {
	return c.call(ctx, op, attempt{timeout: c.request}, f)
}

// write makes a call that changes something, and is never repeated.
func (c *Client) write(ctx context.Context, op string, f func(context.Context, *conn) error) error {
	return c.call(ctx, op, attempt{timeout: c.request, write: true}, f)
}

// call is the one way out of this package: it sets the deadline, finds the connection, and gives the error its class.
func (c *Client) call(ctx context.Context, op string, a attempt, f func(context.Context, *conn) error) error {
	used, err := c.pool.acquire(c)
	if errors.Is(err, errClosed) {
		return c.fail(op, Canceled, err)
	}
	if err != nil {
		return c.fail(op, BadCredentials, err)
	}
	var sent sentFlag
	caller := ctx
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, attemptKey{}, &sent), a.timeout)
	defer cancel()

	err = c.reach(ctx, used)
	if err == nil {
		err = f(ctx, used)
	} else {
		a.timeout = min(a.timeout, c.dial)
	}
	if err == nil {
		c.pool.release(c, used, false)
		return nil
	}
	if e := (*Error)(nil); errors.As(err, &e) { // An answer that f itself could not accept.
		c.pool.release(c, used, false)
		return c.fail(op, e.Class, e.Err)
	}
	a.sent, a.maintenance, a.cut = sent.Load(), c.key.maintenance, caller.Err() != nil
	class, cause := classify(err, a)
	c.pool.release(c, used, broken(class))
	return c.fail(op, class, cause)
}

func (c *Client) reach(ctx context.Context, used *conn) error {
	ctx, cancel := context.WithTimeout(ctx, c.dial)
	defer cancel()
	return used.connect(ctx)
}

func (c *Client) fail(op string, class Class, cause error) error {
	return &Error{Op: op, Address: c.address, Class: class, Err: cause}
}

// broken tells whether an error of this class says that the connection is of no more use. A call that timed out may have
// met a machine that went away without a word.
func broken(c Class) bool {
	switch c {
	case Unreachable, Timeout, WrongCluster, CertificateRequired, ClockSkew, NameMismatch, FingerprintMismatch, BadCredentials, Ambiguous:
		return true
	default:
		return false
	}
}

// answer is the error of a call whose answer cannot be accepted.
func answer(class Class, text string) error { return &Error{Class: class, Err: errors.New(text)} }

// A reply is a reply of the machine service: one message for each machine that answered.
type reply[M any] interface{ GetMessages() []M }

// only returns the one message of a direct call's reply.
func only[M any](r reply[M], err error) (M, error) {
	var zero M
	if err != nil {
		return zero, err
	}
	if n := len(r.GetMessages()); n != 1 {
		return zero, answer(Other, "the reply does not hold exactly one message")
	}
	return r.GetMessages()[0], nil
}
