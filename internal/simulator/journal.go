package simulator

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// journalKernel is the log that Dmesg shows, where Talos also writes what it shows on the console.
	journalKernel = "kernel"
	// journalLines is how many lines of each log are kept. Talos bounds its logs too, by their size.
	journalLines = 2000
)

// A journalLine is one line of a log.
type journalLine struct {
	at   time.Time
	text string
}

// A journalLog holds the last lines of one log. The first one kept has position first.
type journalLog struct {
	first int
	lines []journalLine
}

// A journal is what one boot wrote: a log for each service and that of the kernel, in memory and lost with the boot.
type journal struct {
	mu      sync.Mutex
	logs    map[string]*journalLog
	changed chan struct{}
}

func newJournal() *journal {
	return &journal{logs: map[string]*journalLog{}, changed: make(chan struct{})}
}

// write adds a line to a log. The first line is what makes a log known.
func (j *journal) write(id, text string) {
	j.mu.Lock()
	defer j.mu.Unlock()

	l := j.logs[id]
	if l == nil {
		l = &journalLog{}
		j.logs[id] = l
	}
	l.lines = append(l.lines, journalLine{at: time.Now(), text: text})
	if len(l.lines) > journalLines {
		l.lines = slices.Delete(l.lines, 0, 1)
		l.first++
	}
	close(j.changed)
	j.changed = make(chan struct{})
}

// ids are the logs that are known, sorted.
func (j *journal) ids() []string {
	j.mu.Lock()
	defer j.mu.Unlock()

	out := make([]string, 0, len(j.logs))
	for id := range j.logs {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// tail returns the position from which a reader sees the last n lines, or all that are kept if n is negative. It reports false
// for a log that is not known.
func (j *journal) tail(id string, n int) (pos int, known bool) {
	j.mu.Lock()
	defer j.mu.Unlock()

	l, known := j.logs[id]
	if !known {
		return 0, false
	}
	if n < 0 || n > len(l.lines) {
		n = len(l.lines)
	}
	return l.first + len(l.lines) - n, true
}

// read returns the lines from a position on and the position after them. Without any, a reader that follows waits for one;
// another one gets none. Lines that are gone are skipped.
func (j *journal) read(ctx context.Context, id string, pos int, follow bool) ([]journalLine, int, error) {
	for {
		j.mu.Lock()
		changed := j.changed
		var lines []journalLine
		next := pos
		if l := j.logs[id]; l != nil {
			next = l.first + len(l.lines)
			lines = slices.Clone(l.lines[min(max(pos-l.first, 0), len(l.lines)):])
		}
		j.mu.Unlock()
		if len(lines) > 0 || !follow {
			return lines, next, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, pos, ctx.Err()
		}
	}
}
