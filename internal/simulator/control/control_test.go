package control

import (
	"context"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/maesh/provider-ichor/internal/simulator"
)

func TestControl(t *testing.T) {
	f, err := simulator.NewFleet(simulator.Options{Dir: t.TempDir(), Subnet: netip.MustParsePrefix("127.19.7.0/24"), Scale: 60})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := f.AddMachine(simulator.MachineSpec{Name: "m1", PoweredOff: true}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(Handler(f))
	t.Cleanup(server.Close)
	c := &Client{Address: strings.TrimPrefix(server.URL, "http://"), HTTP: server.Client()}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	if err := c.Healthy(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.SetFault(ctx, "m1", simulator.FaultAPIDown, true); err != nil {
		t.Fatal(err)
	}
	machines, err := c.Machines(ctx)
	if err != nil || len(machines) != 1 {
		t.Fatalf("machines %v, error %v", machines, err)
	}
	if m := machines[0]; m.Name != "m1" || m.PoweredOn || m.UUID == "" || !slices.Equal(m.Faults, []string{simulator.FaultAPIDown}) {
		t.Errorf("machine %+v", m)
	}
	if err := c.SetPower(ctx, "m1", true); err != nil {
		t.Fatal(err)
	}
	if !f.Machine("m1").PoweredOn() {
		t.Error("the power is off")
	}
	if rpcs, err := c.RPCs(ctx, 0); err != nil || len(rpcs) != 0 {
		t.Errorf("calls %v, error %v", rpcs, err)
	}
	for text, err := range map[string]error{
		`there is no machine "nope"`:                      c.SetFault(ctx, "nope", simulator.FaultAPIDown, true),
		`cannot set fault "nope": there is no such fault`: c.SetFault(ctx, "m1", "nope", true),
		`on="" is neither true nor false`:                 c.call(ctx, "POST", "/machines/m1/power", nil, nil),
		`since="x" is not a sequence number`:              c.call(ctx, "GET", "/rpcs", map[string][]string{"since": {"x"}}, nil),
		`cannot call the simulator: `:                     (&Client{Address: "%"}).Healthy(ctx),
	} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want %q", err, text)
		}
	}
}
