package workload

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// answerer is a backend that says its name to everyone and then keeps the connection open.
func answerer(t *testing.T, name string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, name+"\n")
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

// call connects through the balancer and returns who answered, "" if nobody did, and the open connection.
func call(t *testing.T, b *balancer) (string, net.Conn) {
	t.Helper()
	conn, err := net.Dial("tcp", b.address().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if errors.Is(err, io.EOF) || (err != nil && line == "") {
		return "", conn
	}
	return line[:len(line)-1], conn
}

func TestBalancerFollowsTheMembers(t *testing.T) {
	b, err := newBalancer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	one, two := answerer(t, "one"), answerer(t, "two")

	if who, _ := call(t, b); who != "" {
		t.Errorf("%q answers though nobody is there", who)
	}

	b.set([]netip.AddrPort{one})
	who, conn := call(t, b)
	if who != "one" {
		t.Fatalf("%q answers, want one", who)
	}

	b.set([]netip.AddrPort{two})
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection to a member that is gone says %v, want that it is closed", err)
	}
	if who, _ := call(t, b); who != "two" {
		t.Errorf("%q answers, want two", who)
	}
}

func TestBalancerPassesOverDeadMembers(t *testing.T) {
	b, err := newBalancer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	dead := reservePort(t)
	b.set([]netip.AddrPort{dead, answerer(t, "alive")})
	for range 4 {
		if who, _ := call(t, b); who != "alive" {
			t.Errorf("%q answers, want alive", who)
		}
	}
}
