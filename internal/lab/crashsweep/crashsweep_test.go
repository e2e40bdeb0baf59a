package crashsweep

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/maesh/provider-ichor/internal/lab"
)

// TestFuse has many write at once: exactly so many writes are counted, and there is one end.
func TestFuse(t *testing.T) {
	kills := 0
	f := &fuse{kill: func() error { kills++; return nil }}
	f.light(5)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() { f.wrote(fmt.Sprint(i)) })
	}
	all.Wait()
	writes, burnt, err := f.snuff()
	if len(writes) != 5 || !burnt || kills != 1 || err != nil || f.alive() {
		t.Errorf("%d writes, burnt %t, %d kills, alive %t: %v", len(writes), burnt, kills, f.alive(), err)
	}
	f.light(0)
	for range 40 {
		if !f.wrote("x") {
			t.Fatal("somebody was killed though nobody should be")
		}
	}
	f.light(2)
	f.wrote("x")
	if _, burnt, _ := f.snuff(); burnt || !f.wrote("x") {
		t.Error("somebody was killed after the job had ended")
	}
	f.kill = func() error { return errors.New("it does not die") }
	f.light(1)
	f.wrote("x")
	if _, _, err := f.snuff(); err == nil {
		t.Error("what cannot be killed is not told")
	}
}

// A server is a Kubernetes API that remembers what reached it.
type server struct {
	mu   sync.Mutex
	seen []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r.Method+" "+r.URL.Path)
	if strings.Contains(r.URL.Path, "conflicting") {
		w.WriteHeader(http.StatusConflict)
	}
	_, _ = io.WriteString(w, "done") // A caller who left gets nothing.
}

// TestManagementFront kills whoever writes after their second write: it has been done, they are not told, and nothing that they
// write reaches the server any more.
func TestManagementFront(t *testing.T) {
	s := &server{}
	upstream := httptest.NewServer(s)
	t.Cleanup(upstream.Close)
	f := &fuse{kill: func() error { return nil }}
	f.light(2)
	front, config, err := management(t.Context(), &rest.Config{Host: upstream.URL}, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(front.close)
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	send := func(method, path string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := c.Do(req)
		if err != nil {
			return "no answer"
		}
		body, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			return "no answer"
		}
		return string(body)
	}
	const machines = "/apis/ichor.maesh.dev/v1alpha1/namespaces/default/talosmachines"
	for _, step := range []struct{ method, path, want string }{
		{"GET", machines, "done"},
		{"POST", "/api/v1/namespaces/default/events", "done"},
		{"PUT", machines + "/conflicting", "done"},
		{"PUT", machines + "/cp-1/status", "done"},
		{"DELETE", machines + "/cp-1", "no answer"}, // The second write.
		{"PUT", machines + "/cp-2", "no answer"},
		{"GET", machines, "done"},
	} {
		if got := send(step.method, step.path); got != step.want {
			t.Errorf("%s %s: %q, want %q", step.method, step.path, got, step.want)
		}
	}
	writes, burnt, _ := f.snuff()
	if diff := cmp.Diff([]string{"management: PUT talosmachines/cp-1/status", "management: DELETE talosmachines/cp-1"}, writes); diff != "" || !burnt {
		t.Errorf("writes, burnt %t: -want, +got:\n%s", burnt, diff)
	}
	if n := len(s.seen); n != 6 || s.seen[4] != "DELETE "+machines+"/cp-1" {
		t.Errorf("%d requests reached the server: %q", n, s.seen)
	}

	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // It is nobody.
	t.Cleanup(stranger.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+machines, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := stranger.Do(req); err == nil {
		_ = answer.Body.Close() // It should not be there.
		t.Error("somebody without the certificate got through to the server as an administrator")
	}
}

func TestChange(t *testing.T) {
	for path, want := range map[string]string{
		"/apis/coordination.k8s.io/v1/namespaces/default/leases/x": "PUT leases/x",
		"/api/v1/nodes/cp-1": "PUT nodes/cp-1",
		"/api/v1/namespaces/kube-system/pods/dns/eviction":              "PUT pods/dns/eviction",
		"/api/v1/namespaces/default":                                    "PUT namespaces/default",
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":        "",
		"/apis/events.k8s.io/v1/namespaces/default/events/x":            "",
		"/apis/ichor.maesh.dev/v1alpha1/clusterproviderconfigs/default": "PUT clusterproviderconfigs/default",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, path, http.NoBody)
		if got := change(r); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
		r.Method = http.MethodGet
		if got := change(r); got != "" {
			t.Errorf("a GET of %s is a change: %q", path, got)
		}
	}
}

// TestCalls has a machine tell what it has carried out.
func TestCalls(t *testing.T) {
	f := &fuse{}
	f.light(0)
	w := httptest.NewRecorder()
	calls(f).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{"machine":"m1","method":"/machine.MachineService/Reset"}`)))
	writes, _, _ := f.snuff()
	if diff := cmp.Diff([]string{"m1: Reset"}, writes); diff != "" || w.Code != http.StatusOK {
		t.Errorf("status %d, -want, +got:\n%s", w.Code, diff)
	}
}

func TestOrderly(t *testing.T) {
	call := func(machine, method string) lab.RPC { return lab.RPC{Machine: machine, Method: method, Done: true} }
	lost := lab.RPC{Machine: "m1", Method: callLeave, Done: true, Code: 14}
	cases := map[string]struct {
		sent    []lab.RPC
		worker  bool
		problem string
	}{
		"Removal":      {sent: []lab.RPC{call("m1", callLeave), call("m1", callReset)}},
		"LeaveAgain":   {sent: []lab.RPC{lost, call("m1", callLeave), call("m1", callReset), call("m1", callReset)}},
		"Worker":       {sent: []lab.RPC{call("m1", callReset)}, worker: true},
		"NoLeave":      {sent: []lab.RPC{lost, call("m1", callReset)}, problem: "before it left etcd"},
		"LeaveAfter":   {sent: []lab.RPC{call("m1", callLeave), call("m1", callReset), call("m1", callLeave)}, problem: "after it was reset"},
		"LeftTwice":    {sent: []lab.RPC{call("m1", callLeave), call("m1", callLeave), call("m1", callReset)}, problem: "2 times"},
		"NoReset":      {sent: []lab.RPC{call("m1", callLeave)}, problem: "reset 0 times"},
		"OtherReset":   {sent: []lab.RPC{call("m1", callLeave), call("m2", callReset)}, problem: "sent to m2"},
		"OtherReboots": {sent: []lab.RPC{call("m1", callLeave), call("m1", callReset), call("m3", callReboot)}, problem: "sent to m3"},
		"Bootstrap":    {sent: []lab.RPC{call("m1", callLeave), call("m1", callReset), call("m1", callBootstrap)}, problem: "Bootstrap"},
		"WorkerLeaves": {sent: []lab.RPC{call("m1", callLeave), call("m1", callReset)}, worker: true, problem: "1 times, want 0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := orderly(tc.sent, "m1", !tc.worker)
			if (err == nil) != (tc.problem == "") || err != nil && !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("orderly: %v, want %q", err, tc.problem)
			}
		})
	}
}

func TestFits(t *testing.T) {
	cases := map[string]struct {
		limit, one time.Duration
		writes     int
		want       int
	}{
		"NoLimit": {one: time.Minute, writes: 50, want: 1},
		"All":     {limit: time.Hour, one: time.Second, writes: 50, want: 1},
		"Some":    {limit: 6 * time.Minute, one: 30 * time.Second, writes: 49, want: 5},
		"One":     {limit: time.Minute, one: 2 * time.Minute, writes: 49, want: 49},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &sweep{o: Options{Limit: tc.limit}}
			if got := s.fits(tc.writes, tc.one); got != tc.want {
				t.Errorf("every %d., want every %d.", got, tc.want)
			}
		})
	}
}

// TestReport counts what a sweep came to.
func TestReport(t *testing.T) {
	r := Report{Jobs: []JobReport{{Name: "removal", Points: 3}, {Name: "worker", Points: 2, Violation: "lost quorum"}}}
	if diff := cmp.Diff([]string{"worker: lost quorum"}, r.Violations()); diff != "" || r.Points() != 5 {
		t.Errorf("%d points, -want, +got:\n%s", r.Points(), diff)
	}
}

// TestNoSuchJob is told before anything is started.
func TestNoSuchJob(t *testing.T) {
	if _, err := Run(context.Background(), Options{Jobs: []string{"nap"}}); err == nil || !strings.Contains(err.Error(), `"nap"`) {
		t.Errorf("Run: %v", err)
	}
}
