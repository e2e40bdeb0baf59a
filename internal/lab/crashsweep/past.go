package crashsweep

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A past shows caches a cluster as it was before the last write that was made through a front. It is safe for concurrent use.
type past struct {
	mu sync.Mutex
	// last is the revision of the last write; 0 before there was one.
	last int64
	// shown is the revision that is shown, until over is closed; 0 shows the present.
	shown int64
	over  chan struct{}
	// lists is how many were answered from the past.
	lists int
}

// wrote reads the revision of a write from the answer to it. A delete that leaves nothing has none.
func (p *past) wrote(answer *http.Response) error {
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("cannot read what came of a write: %w", err)
	}
	answer.Body = io.NopCloser(bytes.NewReader(text))
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	if json.Unmarshal(text, &o) != nil || o.Metadata.ResourceVersion == "" {
		return nil
	}
	revision, err := strconv.ParseInt(o.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("cannot read the revision of a write: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = max(p.last, revision)
	return nil
}

// show the past for so long, beginning now.
func (p *past) show(how time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	over := make(chan struct{})
	p.shown, p.over, p.lists = p.last-1, over, 0
	time.AfterFunc(how, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.over == over {
			p.shown, p.over = 0, nil
		}
		close(over)
	})
}

// answered is how many lists were answered from the past that was shown last.
func (p *past) answered() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lists
}

func (p *past) list() (revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown > 0 {
		p.lists++
	}
	return p.shown
}

func (p *past) now() (over chan struct{}, shown bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over, p.shown > 0
}

// before answers caches, and nobody else, from the past: these are the ones that list whatever there is at hand, and watch what
// comes after that. Whoever reads to be sure asks for no revision.
func (p *past) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		over, shown := p.now()
		switch {
		case r.Method != http.MethodGet || !shown:
		case q.Get("sendInitialEvents") == "true": // Those list if they cannot have that.
			http.Error(w, "no initial events from the past", http.StatusUnprocessableEntity)
			return
		case q.Get("watch") == "true":
			select {
			case <-over:
			case <-r.Context().Done():
				return
			}
		case q.Get("resourceVersion") == "0":
			if at := p.list(); at > 0 {
				q.Set("resourceVersion", strconv.FormatInt(at, 10))
				q.Set("resourceVersionMatch", "Exact")
				r.URL.RawQuery = q.Encode()
			}
		}
		next.ServeHTTP(w, r)
	})
}
