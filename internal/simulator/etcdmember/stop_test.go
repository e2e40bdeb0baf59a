package etcdmember

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// A leader whose last peer stops with it has nobody to hand over to, and etcd would wait for that longer than any test should.
func TestStopOfAllMembersAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	nodes := []*node{l.bootstrapped("a"), l.joined("b"), l.joined("c")}
	begun := time.Now()
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(n.Stop)
	}
	wg.Wait()
	if took, limit := time.Since(begun), transferTimeout+3*time.Second; took > limit {
		t.Errorf("stopping took %s, want at most %s", took, limit)
	}
	for _, n := range nodes {
		n.portsAreFree()
	}
}

// The private keys of a member lie on disk only while its etcd runs.
func TestStopRemovesTheCertificates(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	n := l.bootstrapped("a")
	pki := filepath.Join(n.dir, "pki")
	if entries, err := os.ReadDir(pki); err != nil || len(entries) != 3 {
		t.Fatalf("certificates while it runs: %v, error %v", entries, err)
	}
	n.Stop()
	if _, err := os.Stat(pki); !os.IsNotExist(err) {
		t.Errorf("they are still there after it has stopped: %v", err)
	}
}
