package survey

import (
	"context"
	"sync"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/talos"
)

const whyNotObserved = "it is not asked for in an observation"

// An Observation is what one machine answered to Observe.
type Observation struct {
	// Live is what the machine said of itself. Its EtcdService, and a control plane's Nodename, are not asked for here and are
	// unknown: an overview has them.
	Live facts.Live
	// Unmet is what keeps a machine in stage booting or running from being ready, in Talos's words.
	Unmet []string
	// Config is what the machine runs and what is on its disk, with every key in it. Unknown for blank machines.
	Config facts.Known[talos.Config]
	// Etcd is what the machine's member says of itself; unknown for workers.
	Etcd facts.Known[talos.EtcdStatus]
	// Schematic of the running image; empty if no image factory made it. Unknown for blank machines.
	Schematic facts.Known[string]
}

// Look asks one machine what it is and what it runs, in at most six calls, and one more after each boot and while it boots. A machine that
// does not answer is an error of package talos, with its class; it is never "does not exist".
func (s *Surveyor) Look(ctx context.Context, m *v1alpha1.TalosMachine, a Access) (Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, machineBudget)
	defer cancel()
	id, err := identify(ctx, a, m.Spec.ForProvider.Address, pin(m))
	if err != nil {
		return Observation{}, err
	}
	if id.mode == facts.Maintenance {
		const why = "a blank machine does not tell it"
		return Observation{
			Live: lookBlank(ctx, id), Unmet: id.status.Unmet,
			Config:    facts.Unknown[talos.Config](why),
			Etcd:      facts.Unknown[talos.EtcdStatus](why),
			Schematic: facts.Unknown[string](why),
		}, nil
	}

	o := Observation{
		Live: facts.Live{
			Mode: facts.Configured, UUID: id.uuid,
			Nodename: facts.Unknown[string](whyNotObserved), EtcdService: facts.Unknown[string](whyNotObserved),
		},
		Etcd: facts.Unknown[talos.EtcdStatus](whyNoEtcd),
	}
	var status talos.Status
	var g errgroup.Group
	g.Go(func() (err error) {
		status, err = id.door.Status(ctx)
		if err == nil && m.Spec.ForProvider.Role == v1alpha1.RoleControlPlane {
			o.Etcd = lookMember(ctx, id.door, status.Stage)
		}
		return err
	})
	question(&g, &o.Live.TalosVersion, func() (string, error) { return id.door.Version(ctx) })
	if m.Spec.ForProvider.Role != v1alpha1.RoleControlPlane {
		question(&g, &o.Live.Nodename, func() (string, error) { return id.door.Nodename(ctx) }) // An overview asks control planes.
	}
	g.Go(func() error {
		// In this order: if the machine is in this boot later, too, its configuration was read in it.
		o.Live.BootID = known(id.door.BootID(ctx))
		o.Config = known(id.door.Config(ctx))
		return nil
	})
	if err := g.Wait(); err != nil {
		return Observation{}, err
	}
	o.Live.Stage, o.Live.Ready, o.Unmet = status.Stage, status.Ready, status.Unmet
	o.Live.Member = memberOf(o.Etcd)
	o.Schematic = s.schematics.of(ctx, m.GetUID(), o.Live, id.door)
	return o, nil
}

// lookMember asks a control plane's member about itself. While the machine boots, etcd may not be begun yet.
func lookMember(ctx context.Context, door Machine, stage string) facts.Known[talos.EtcdStatus] {
	if stage == stageBooting {
		if service, err := door.EtcdService(ctx); err == nil && isDown(service.State) {
			return facts.Unknown[talos.EtcdStatus](whyDown(service.State))
		}
	}
	return known(door.EtcdStatus(ctx))
}

// pin is the fingerprint that a blank machine must show: the declared one, until the machine has had its configuration.
// It changes with every boot, so that afterwards it would only keep a reset machine from being recognised.
func pin(m *v1alpha1.TalosMachine) string {
	if meta.GetExternalName(m) != "" {
		return ""
	}
	return m.Spec.ForProvider.MaintenanceFingerprint
}

// schematics remember the schematic of each machine's running image, which changes only with a boot. The zero value is
// ready for use.
type schematics struct {
	mu   sync.Mutex
	seen map[types.UID]booted
}

type booted struct{ bootID, schematic string }

// of returns the schematic of a machine, from memory if it has not booted since.
func (s *schematics) of(ctx context.Context, machine types.UID, l facts.Live, door Machine) facts.Known[string] {
	boot, ok := l.BootID.Get()
	if !ok {
		return facts.Unknown[string]("the machine's boot ID is not known")
	}
	s.mu.Lock()
	last, ok := s.seen[machine]
	s.mu.Unlock()
	if ok && last.bootID == boot {
		return facts.Of(last.schematic)
	}
	schematic, err := door.Schematic(ctx)
	if err != nil {
		return facts.Unknown[string](err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[types.UID]booted{}
	}
	s.seen[machine] = booted{bootID: boot, schematic: schematic}
	return facts.Of(schematic)
}

// Forget drops what is remembered of a machine whose object is gone.
func (s *Surveyor) Forget(machine types.UID) {
	s.schematics.mu.Lock()
	defer s.schematics.mu.Unlock()
	delete(s.schematics.seen, machine)
}
