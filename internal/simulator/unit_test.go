package simulator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/protobuf/proto"
)

// TestTakeovers goes through every pair of sequences: who may take over whom.
func TestTakeovers(t *testing.T) {
	yes := map[[2]sequence]bool{ // requested, running
		{seqReboot, seqInitialize}: true, {seqReboot, seqBoot}: true, {seqReboot, seqReboot}: true, {seqReboot, seqReset}: true,
		{seqReset, seqBoot}: true, {seqUpgrade, seqBoot}: true, {seqStageUpgrade, seqBoot}: true, {seqMaintenanceUpgrade, seqInitialize}: true,
	}
	for requested := seqInitialize; requested <= seqMaintenanceUpgrade; requested++ {
		for running := seqInitialize; running <= seqMaintenanceUpgrade; running++ {
			for _, forced := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s over %s, forced %t", requested, running, forced), func(t *testing.T) {
					want := forced || yes[[2]sequence{requested, running}]
					if got := takesOver(t, requested, running, forced); got != want {
						t.Errorf("takes over: %t, want %t", got, want)
					}
				})
			}
		}
	}
}

func takesOver(t *testing.T, requested, running sequence, forced bool) bool {
	t.Helper()
	q := newSequencer(func(string, proto.Message) {}, func(ending) {}, func(d time.Duration) time.Duration { return d })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- q.run(ctx, "", running, []phase{single("p", "t", func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			return ctx.Err()
		})}, false)
	}()
	<-started
	err := q.run(ctx, "", requested, []phase{single("p", "t", nothing)}, forced)
	cancel()
	<-ended
	if err != nil && !errors.Is(err, errSequenceLocked) {
		t.Fatal(err)
	}
	return err == nil
}

func TestSequenceErrors(t *testing.T) {
	boom := errors.New("boom")
	fails := func(context.Context) error { return boom }
	for _, tc := range []struct {
		reason string
		phases []phase
		end    endKind
	}{
		{"a failure is fatal", []phase{single("p", "t", nothing), single("q", "u", fails)}, endFatal},
		{"an ignored failure is not", []phase{ignoring(single("p", "t", fails))}, 0},
		{"the last task ends the boot", []phase{single("p", "t", func(context.Context) error { return endingError{ending{kind: endReboot}} })}, endReboot},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var end ending
			var last string
			q := newSequencer(func(_ string, m proto.Message) {
				if e, ok := m.(*machine.SequenceEvent); ok && e.GetError() != nil {
					last = e.GetError().GetMessage()
				}
			}, func(e ending) { end = e }, func(d time.Duration) time.Duration { return d })
			_ = q.run(t.Context(), "", seqReset, tc.phases, false)
			if end.kind != tc.end {
				t.Errorf("ended with %v, want %v", end.kind, tc.end)
			}
			if want := "sequence failed: error running phase 2 in reset sequence: task 1/1: failed, boom"; tc.end == endFatal && last != want {
				t.Errorf("event says %q, want %q", last, want)
			}
			if q.current() != 0 {
				t.Error("the lock is still held")
			}
		})
	}
}

func TestEventRing(t *testing.T) {
	r := newEventRing()
	for i := range 1500 {
		r.publish("", &machine.RestartEvent{Cmd: int64(i)})
	}
	cmd := func(req *machine.EventsRequest) int64 {
		pos, err := r.start(req)
		if err != nil {
			t.Fatal(err)
		}
		e, ok, err := r.read(t.Context(), pos)
		if err != nil || !ok {
			t.Fatalf("position %d: %t, %v", pos, ok, err)
		}
		return e.payload.(*machine.RestartEvent).GetCmd()
	}
	if got := cmd(&machine.EventsRequest{TailEvents: -1}); got != 510 {
		t.Errorf("the oldest event is %d, want 510", got)
	}
	if got := cmd(&machine.EventsRequest{TailEvents: 3}); got != 1497 {
		t.Errorf("the third last event is %d", got)
	}
	id := r.ring[1200%eventCapacity].id
	if got := cmd(&machine.EventsRequest{TailId: id}); got != 1201 {
		t.Errorf("after 1200 comes %d", got)
	}
	if got := cmd(&machine.EventsRequest{TailSeconds: 3600}); got != 510 {
		t.Errorf("the first of the last hour is %d", got)
	}
	if _, err := r.start(&machine.EventsRequest{TailId: "nonsense"}); err == nil {
		t.Error("a bad ID was accepted")
	}
	if _, ok, _ := r.read(t.Context(), 100); ok {
		t.Error("an event that was overwritten was read")
	}
}

func TestRules(t *testing.T) {
	for _, tc := range []struct {
		method string
		roles  []role.Role
	}{
		{machineService + "Reset", []role.Role{role.Admin}},
		{machineService + "NeverHeardOf", []role.Role{role.Admin}},
		{machineService + "Reboot", []role.Role{role.Admin, role.Operator}},
		{machineService + "EtcdSnapshot", []role.Role{role.Admin, role.Operator, role.EtcdBackup}},
		{machineService + "EtcdMemberList", []role.Role{role.Admin, role.Operator, role.Reader, role.EtcdBackup}},
		{machineService + "Version", []role.Role{role.Admin, role.Operator, role.Reader}},
		{imageService + "Pull", []role.Role{role.Admin, role.Operator}},
		{imageService + "Verify", []role.Role{role.Admin, role.Operator, role.Reader, role.ImageVerifier}},
		{lifecycleService + "Upgrade", []role.Role{role.Admin}},
		{cosiService + "Watch", []role.Role{role.Admin, role.Operator, role.Reader}},
	} {
		for _, r := range []role.Role{role.Admin, role.Operator, role.Reader, role.EtcdBackup, role.ImageVerifier, role.MetaWriter, role.Impersonator} {
			if got, want := allowed(tc.method, role.MakeSet(r)), slices.Contains(tc.roles, r); got != want {
				t.Errorf("%s may call %s: %t, want %t", r, tc.method, got, want)
			}
		}
	}
	for method, want := range map[string]bool{
		machineService + "Reset": true, machineService + "ApplyConfiguration": true, machineService + "EtcdLeaveCluster": true, lifecycleService + "Upgrade": true,
		machineService + "Version": false, cosiService + "Get": false, machineService + "Read": false, machineService + "EtcdSnapshot": false,
	} {
		if Mutating(method) != want {
			t.Errorf("%s is mutating: %t, want %t", method, !want, want)
		}
	}
}

func TestRPCLog(t *testing.T) {
	l := newRPCLog()
	rec := l.begin(RPC{Method: "a"})
	l.begin(RPC{Method: "b"})
	if got := l.Since(1); len(got) != 1 || got[0].Method != "b" || got[0].Seq != 2 {
		t.Errorf("since 1: %v", got)
	}
	go l.amend(rec, func(r *RPC) { r.Done = true })
	if err := l.Wait(testContext(t), func(rpcs []RPC) bool { return rpcs[0].Done }); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Wait(ctx, func([]RPC) bool { return false }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestFleetRefuses(t *testing.T) {
	f := newTestFleet(t, Options{})
	addMachine(t, f, MachineSpec{Name: "m", PoweredOff: true})
	for _, tc := range []struct {
		spec MachineSpec
		text string
	}{
		{MachineSpec{}, "it needs a name"},
		{MachineSpec{Name: "m"}, "is there already"},
		{MachineSpec{Name: "n", Address: f.Machine("m").Address()}, "is there already"},
		{MachineSpec{Name: "n", Address: f.Machine("m").Address().Next(), TalosVersion: "1.13"}, "is not of the form v1.2.3"},
	} {
		if _, err := f.AddMachine(tc.spec); err == nil || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("error %v, want %q", err, tc.text)
		}
	}
	if _, err := NewFleet(Options{Scale: -1}); err == nil {
		t.Error("a negative scale was accepted")
	}
}
