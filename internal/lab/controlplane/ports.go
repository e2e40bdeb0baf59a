package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
)

// Ports are chosen below the range from which the kernel takes the local ends of outgoing connections (32768 and up on
// Linux), so that no connection can take one between the choice and the moment when the child listens on it.
const (
	lowestPort  = 20000
	highestPort = 29999
)

// reservations is the loopback address on which a chosen port is held as long as it is reserved. All processes that use this
// package hold theirs there, and the kernel gives each port out once.
const reservations = "127.255.255.254"

// A Port is a TCP port that is free on 127.0.0.1 and that no other user of this package in any process is given until
// Release.
type Port struct {
	Number uint16

	held net.Listener
}

// ReservePort finds a free port and reserves it.
func ReservePort() (*Port, error) {
	const tries = 100
	var last error
	for range tries {
		number := lowestPort + rand.IntN(highestPort-lowestPort+1) // any free port will do
		text := strconv.Itoa(number)
		held, err := listen(net.JoinHostPort(reservations, text))
		if err != nil {
			last = err
			continue
		}
		probe, err := listen(net.JoinHostPort("127.0.0.1", text))
		if err != nil {
			last = errors.Join(err, held.Close())
			continue
		}
		if err := probe.Close(); err != nil {
			return nil, errors.Join(err, held.Close())
		}
		return &Port{Number: uint16(number), held: held}, nil // between the two constants above
	}
	return nil, fmt.Errorf("cannot find a free port in %d tries: %w", tries, last)
}

func listen(address string) (net.Listener, error) {
	return net.Listen("tcp", address) //nolint:noctx // a literal address takes no look-up that a context could cut short
}

// Loopback is the port on 127.0.0.1.
func (p *Port) Loopback() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), p.Number)
}

// Release lets others have the port. Call it after whoever listens on it has stopped.
func (p *Port) Release() { _ = p.held.Close() } // Nothing was ever sent on it, so closing it cannot lose anything.
