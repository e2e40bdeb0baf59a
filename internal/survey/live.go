package survey

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/talos"
)

const (
	// stageMaintenance is the stage of a blank machine that waits for its configuration.
	stageMaintenance = "maintenance"
	// stageBooting is the stage of a machine until everything on it runs.
	stageBooting = "booting"
	// stageRunning is the stage of a machine that is up.
	stageRunning = "running"
)

// A sight is what one machine answered.
type sight struct {
	live facts.Known[facts.Live]

	// status, members and alarms are what its etcd answered, if it was asked.
	status  facts.Known[talos.EtcdStatus]
	members facts.Known[[]talos.Member]
	alarms  facts.Known[[]talos.Alarm]
}

// ask asks machines, a bounded number at a time. The answers are in the order of the machines.
func ask(ctx context.Context, a Access, machines []facts.Machine) []sight {
	seen := make([]sight, len(machines))
	var g errgroup.Group
	g.SetLimit(askedAtOnce)
	for i, m := range machines {
		g.Go(func() error {
			seen[i] = askOne(ctx, a, m)
			return nil
		})
	}
	_ = g.Wait() // Nothing fails: a machine that does not answer is unknown.
	return seen
}

func askOne(ctx context.Context, a Access, m facts.Machine) sight {
	if m.Removed {
		return sight{live: facts.Unknown[facts.Live]("its removal was completed, so it is not asked any more")}
	}
	ctx, cancel := context.WithTimeout(ctx, machineBudget)
	defer cancel()

	// No fingerprint: it changes with every boot, so a pin for the first configuration says nothing after a reset.
	id, err := identify(ctx, a, m.Address, "")
	if err != nil {
		return sight{live: facts.Unknown[facts.Live](err.Error())}
	}
	if id.mode == facts.Maintenance {
		return sight{live: facts.Of(lookBlank(ctx, id))}
	}
	return lookConfigured(ctx, id, m.Role)
}

// An identity is a machine that answered and said which one it is.
type identity struct {
	mode facts.Mode
	uuid string
	// stage is known of a blank machine already.
	status talos.Status
	door   Machine
}

// identify finds out whether the machine at an address has the cluster's configuration or is blank, and which one it is.
//
// The order matters. A TLS connection with the cluster's own CA proves that it is configured. Only if it shows another CA
// is it asked as a blank machine; a machine of another cluster then asks for a certificate. All else is no answer at all.
func identify(ctx context.Context, a Access, address, fingerprint string) (identity, error) {
	door := a.Machine(address)
	sys, err := door.System(ctx)
	if err == nil {
		return identity{mode: facts.Configured, uuid: sys.UUID, door: door}, nil
	}
	if talos.ClassOf(err) != talos.WrongCluster {
		return identity{}, err
	}

	door = a.Maintenance(address, fingerprint)
	st, merr := door.Status(ctx)
	switch {
	case talos.ClassOf(merr) == talos.CertificateRequired:
		return identity{}, &talos.Error{Op: "recognise the machine", Address: address, Class: talos.WrongCluster,
			Err: errors.New("it is configured with the PKI of another cluster")}
	case merr != nil:
		return identity{}, merr
	case st.Stage != stageMaintenance:
		return identity{}, &talos.Error{Op: "recognise the machine", Address: address, Class: talos.NotReady,
			Err: fmt.Errorf("it has no configuration and is in stage %q", st.Stage)}
	}
	if sys, err = door.System(ctx); err != nil {
		return identity{}, err
	}
	return identity{mode: facts.Maintenance, uuid: sys.UUID, status: st, door: door}, nil
}

// lookBlank asks a blank machine what else it tells: its version, from Talos 1.13 on.
func lookBlank(ctx context.Context, id identity) facts.Live {
	const why = "a blank machine does not tell it"
	return facts.Live{
		Mode: facts.Maintenance, UUID: id.uuid, Stage: id.status.Stage, Ready: id.status.Ready,
		BootID:       facts.Unknown[string](why),
		TalosVersion: known(id.door.Version(ctx)),
		EtcdService:  facts.Unknown[string](why),
		Member:       facts.Unknown[facts.MemberID](why),
	}
}

// lookConfigured asks a configured machine everything else at once: each question has a deadline of its own, and one that
// hangs, as etcd's do without quorum, must not take the time of the others.
func lookConfigured(ctx context.Context, id identity, role facts.Role) sight {
	s := sight{
		status:  facts.Unknown[talos.EtcdStatus](whyNoEtcd),
		members: facts.Unknown[[]talos.Member](whyNoEtcd),
		alarms:  facts.Unknown[[]talos.Alarm](whyNoEtcd),
	}
	live := facts.Live{
		Mode: facts.Configured, UUID: id.uuid,
		EtcdService: facts.Unknown[string](whyNoEtcd), Member: facts.Unknown[facts.MemberID](whyNoEtcd),
	}
	var status facts.Known[talos.Status]
	var g errgroup.Group
	question(&g, &status, func() (talos.Status, error) { return id.door.Status(ctx) })
	question(&g, &live.BootID, func() (string, error) { return id.door.BootID(ctx) })
	question(&g, &live.TalosVersion, func() (string, error) { return id.door.Version(ctx) })
	question(&g, &live.Nodename, func() (string, error) { return id.door.Nodename(ctx) })
	if role == facts.ControlPlane {
		g.Go(func() error { live.EtcdService, live.EtcdSays = lookEtcd(ctx, id.door, &s); return nil })
	}
	_ = g.Wait() // Nothing fails: what is not answered is unknown.

	st, ok := status.Get()
	if !ok {
		// Without its stage nothing can be said of the machine: it may be on its way down.
		s.live = facts.Unknown[facts.Live](status.Why())
		return s
	}
	live.Stage, live.Ready = st.Stage, st.Ready
	if role == facts.ControlPlane {
		live.Member = memberOf(s.status)
	}
	s.live = facts.Of(live)
	return s
}

// lookEtcd asks a control plane for the state of its etcd service and what that says, and its etcd for everything else.
func lookEtcd(ctx context.Context, door Machine, s *sight) (state facts.Known[string], says string) {
	service, err := door.EtcdService(ctx)
	state, says = known(service.State, err), service.Says
	if err == nil && isDown(service.State) {
		why := whyDown(service.State)
		s.status = facts.Unknown[talos.EtcdStatus](why)
		s.members = facts.Unknown[[]talos.Member](why)
		s.alarms = facts.Unknown[[]talos.Alarm](why)
		return state, says
	}
	var g errgroup.Group
	question(&g, &s.status, func() (talos.EtcdStatus, error) { return door.EtcdStatus(ctx) })
	question(&g, &s.members, func() ([]talos.Member, error) { return door.EtcdMembers(ctx) })
	question(&g, &s.alarms, func() ([]talos.Alarm, error) { return door.EtcdAlarms(ctx) })
	_ = g.Wait() // As above.
	return state, says
}

// isDown tells whether an etcd service in this state runs no etcd: one that waits for etcd to be begun or joined prepares,
// one that has left it is finished. Such a one answers nothing, not even that it does not, until the deadline of each
// question has passed.
func isDown(state string) bool { return state == "Preparing" || state == "Finished" }

func whyDown(state string) string {
	return fmt.Sprintf("its etcd does not run: it is in state %q", state)
}

const whyNoEtcd = "only control planes have an etcd member"

func memberOf(status facts.Known[talos.EtcdStatus]) facts.Known[facts.MemberID] {
	if st, ok := status.Get(); ok {
		return facts.Of(facts.MemberID(st.Member))
	}
	return facts.Unknown[facts.MemberID](status.Why())
}

// question asks one question in a goroutine and puts the answer, or why there is none, where it belongs.
func question[T any](g *errgroup.Group, into *facts.Known[T], ask func() (T, error)) {
	g.Go(func() error {
		*into = known(ask())
		return nil
	})
}

// known is an answer, or why there is none.
func known[T any](v T, err error) facts.Known[T] {
	if err != nil {
		return facts.Unknown[T](err.Error())
	}
	return facts.Of(v)
}
