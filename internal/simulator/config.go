package simulator

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/config"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
)

// persistDelay is the time between the answer to an ApplyConfiguration and the moment at which the configuration is on disk;
// a power cut within it loses the change.
const persistDelay = 100 * time.Millisecond

// activeConfig is what the machine runs by; nil in maintenance mode.
func (s *system) activeConfig() config.Provider {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.active
}

// persistentConfig is what the machine would run by after a reboot.
func (s *system) persistentConfig() config.Provider {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.persistent
}

// configured is true once there is an active configuration that is enough to boot.
func (s *system) configured() bool {
	cfg := s.activeConfig()
	return cfg != nil && cfg.CompleteForBoot()
}

// setActive makes a configuration take effect. nil takes the effect of the last one back.
func (s *system) setActive(cfg config.Provider) error {
	if err := s.publishConfig(configres.ActiveID, cfg); err != nil {
		return err
	}
	s.mu.Lock()
	s.active = cfg
	if cfg != nil && cfg.CompleteForBoot() {
		select {
		case <-s.complete:
		default:
			close(s.complete)
		}
	}
	s.mu.Unlock()
	if cfg != nil {
		if data, err := cfg.Bytes(); err == nil && cfg.CompleteForBoot() {
			s.m.rememberConfig(data)
		}
	}
	s.refresh()
	s.updateKubelet()
	s.m.notify()
	return nil
}

// setPersistent makes a configuration the one that is on disk. Writing it happens a little later, unless it is there already.
func (s *system) setPersistent(cfg config.Provider, write bool) error {
	if err := s.publishConfig(configres.PersistentID, cfg); err != nil {
		return err
	}
	data, err := cfg.Bytes()
	if err != nil {
		return fmt.Errorf("cannot encode configuration: %w", err)
	}
	s.mu.Lock()
	s.persistent = cfg
	if write {
		s.unwritten = data
	}
	s.mu.Unlock()
	if write {
		s.workers.Go(func() {
			if sleep(s.ctx, persistDelay) == nil {
				s.flushConfig()
			}
		})
	}
	return nil
}

// flushConfig writes what was accepted and is not on disk yet, as an orderly reboot does.
func (s *system) flushConfig() {
	s.mu.Lock()
	data := s.unwritten
	s.unwritten = nil
	s.mu.Unlock()
	if data != nil {
		s.m.disks.writeConfig(data)
		s.m.notify()
	}
}

// dropUnwritten forgets what was not yet written: the partition that it belongs to is being wiped.
func (s *system) dropUnwritten() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.unwritten = nil
}

// publishConfig puts the configuration into the resources, byte for byte as it came.
func (s *system) publishConfig(id resource.ID, cfg config.Provider) error {
	ctx := context.Background()
	var err error
	old, getErr := s.cosi.Get(ctx, configres.NewMachineConfigWithID(nil, id).Metadata())
	switch {
	case cfg == nil && getErr == nil:
		err = s.cosi.Destroy(ctx, old.Metadata())
	case cfg == nil:
	case getErr == nil:
		next := configres.NewMachineConfigWithID(cfg, id)
		next.Metadata().SetVersion(old.Metadata().Version())
		next.Metadata().SetCreated(old.Metadata().Created())
		err = s.cosi.Update(ctx, next)
	case state.IsNotFoundError(getErr):
		err = s.cosi.Create(ctx, configres.NewMachineConfigWithID(cfg, id))
	default:
		err = getErr
	}
	if err != nil {
		return fmt.Errorf("cannot publish configuration %q: %w", id, err)
	}
	return nil
}

// clusterID is the cluster that the machine belongs to; empty while it belongs to none.
func (s *system) clusterID() string {
	cfg := s.activeConfig()
	if cfg == nil || cfg.Cluster() == nil || !cfg.CompleteForBoot() {
		return ""
	}
	return cfg.Cluster().ID()
}

// hostname is the configured one, or one made from the node's identity, or, before there is an identity, from the address.
func (s *system) hostname() string {
	if other := s.m.other(); other != nil && s.m.faults.has(FaultDuplicateHostname) && !other.faults.has(FaultDuplicateHostname) {
		return other.Hostname()
	}
	cfg := s.activeConfig()
	if cfg != nil && cfg.NetworkHostnameConfig() != nil {
		if h := cfg.NetworkHostnameConfig().Hostname(); h != "" {
			return h
		}
	}
	if cfg != nil && cfg.CompleteForBoot() {
		id := s.m.disks.nodeIdentity()
		return fmt.Sprintf("talos-%s-%s", id[:3], id[3:6])
	}
	return addressHostname(s.m.spec.Address)
}

func addressHostname(addr netip.Addr) string {
	b := addr.As4()
	return fmt.Sprintf("talos-%d-%d-%d-%d", b[0], b[1], b[2], b[3])
}
