package etcdmember

import (
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// A bootstrap says how a new cluster begins.
type bootstrap struct{ recover, skipHashCheck bool }

// Bootstrap starts a new cluster of this one member, restored from the stored snapshot if asked. It knows of no other machine,
// and returns before etcd runs: what goes wrong after that shows in the state of the service only. It fails if there is data.
func (s *Service) Bootstrap(recoverEtcd, skipHashCheck bool) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.life.Err() != nil {
		return fmt.Errorf("failed to stop etcd: %w", s.life.Err())
	}
	s.halt()
	s.set(func(st *Status) { *st = Status{State: StateFinished, LastMessage: "Bootstrap requested"} })
	if s.hasData() {
		return errors.New("etcd data directory is not empty")
	}
	s.run = s.begin(&bootstrap{recover: recoverEtcd, skipHashCheck: skipHashCheck})
	return nil
}

func (s *Service) prepareBootstrap(b bootstrap) (startup, error) {
	if s.o.Faults(FaultBootstrapFails) {
		return startup{}, errors.New("failed to generate etcd PKI: simulated failure")
	}
	how := startup{cluster: s.o.Hostname + "=" + peerURL(s.o.Address), state: embed.ClusterStateFlagNew}
	if !b.recover {
		return how, nil
	}
	if err := checkSnapshotLength(s.o.SnapshotPath); err != nil {
		return startup{}, fmt.Errorf("error verifying snapshot: %w", err)
	}
	manager := snapshot.NewV3(zap.NewNop())
	if _, err := manager.Status(s.o.SnapshotPath); err != nil {
		return startup{}, fmt.Errorf("error verifying snapshot: %w", err)
	}
	err := manager.Restore(snapshot.RestoreConfig{
		SnapshotPath:   s.o.SnapshotPath,
		Name:           s.o.Hostname,
		OutputDataDir:  s.o.DataDir,
		PeerURLs:       []string{peerURL(s.o.Address)},
		InitialCluster: how.cluster,
		SkipHashCheck:  b.skipHashCheck,
	})
	if err != nil {
		return startup{}, fmt.Errorf("error recovering from the snapshot: %w", err)
	}
	if err := os.Remove(s.o.SnapshotPath); err != nil {
		return startup{}, fmt.Errorf("error deleting snapshot: %w", err)
	}
	return startup{}, nil
}

// checkSnapshotLength refuses a snapshot that ends before its last page. etcd's own check dies of one in a goroutine of its own,
// and would take all machines of this process with it.
func checkSnapshotLength(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // it only reads
	return db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("snapshot file integrity check failed. %d bytes expected, %d found", tx.Size(), info.Size())
		}
		return nil
	})
}
