package crashsweep

import (
	"slices"
	"sync"
)

// A fuse counts what somebody has written and kills them right after a write of a certain number: it is done, and they never
// get to know. It is safe for concurrent use.
type fuse struct {
	kill func() error

	mu     sync.Mutex
	at     int
	writes []string
	burnt  bool
	err    error
}

// light begins to count anew, for somebody who lives. With 0 nobody is killed.
func (f *fuse) light(at int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.writes, f.burnt, f.err = at, nil, false, nil
}

// wrote counts a write that is done and not answered yet. It is false if nobody is left to answer: others that write at the
// same time wait for the end of the one who wrote, so none of them gets further.
func (f *fuse) wrote(what string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.burnt {
		return false
	}
	f.writes = append(f.writes, what)
	if len(f.writes) == f.at {
		f.burnt, f.err = true, f.kill()
	}
	return !f.burnt
}

// alive tells whether nobody was killed yet.
func (f *fuse) alive() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.burnt
}

// snuff returns what was written, whether the last of it was the end, and what went wrong with that. From then on nobody is
// killed.
func (f *fuse) snuff() (writes []string, burnt bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = 0
	return slices.Clone(f.writes), f.burnt, f.err
}
