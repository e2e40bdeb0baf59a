package crashsweep

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
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
	s.seen = append(s.seen, r.Method+" "+r.URL.RequestURI())
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
	front, config, err := management(t.Context(), &rest.Config{Host: upstream.URL}, f, &past{})
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

// TestSpread holds that what there is time for is spread over all writes and all labs.
func TestSpread(t *testing.T) {
	cases := map[string]struct {
		limit, spent, round time.Duration
		writes              int
		want                []int // all labs, after their first points
	}{
		"NoLimit": {spent: time.Minute, round: time.Minute, writes: 8, want: []int{3, 4, 5, 6, 7, 8}},
		"All":     {limit: time.Hour, spent: time.Minute, round: time.Second, writes: 8, want: []int{3, 4, 5, 6, 7, 8}},
		"Some":    {limit: 6 * time.Minute, spent: time.Minute, round: time.Minute, writes: 51, want: []int{6, 12, 16, 22, 26, 32, 36, 42, 46}},
		"Late":    {limit: time.Minute, spent: 2 * time.Minute, round: time.Minute, writes: 51},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []int
			o := Options{Labs: 2, Limit: tc.limit, Subnet: netip.MustParsePrefix("127.10.9.0/24")}
			for _, share := range o.shares() {
				s := &sweep{o: share}
				c := &course{JobReport: JobReport{Writes: tc.writes}, next: share.Offset + share.Every, every: share.Every}
				s.spread([]*course{c}, tc.spent, tc.round)
				for ; !c.over && c.next <= c.Writes; c.next += c.every {
					got = append(got, c.next)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// TestReport counts what several labs came to.
func TestReport(t *testing.T) {
	var r Report
	for _, of := range []Report{
		{Looks: 2, Jobs: []JobReport{{Name: "removal", Variant: Plain, Writes: 9, Points: 3}, {Name: "worker", Variant: Plain, Points: 2, Violations: []string{"lost quorum"}}}},
		{Looks: 3, Jobs: []JobReport{{Name: "removal", Variant: Plain, Writes: 11, Points: 4}, {Name: "removal", Variant: Stale, Points: 1}}},
	} {
		r.add(of)
	}
	want := []JobReport{
		{Name: "removal", Variant: Plain, Writes: 11, Points: 7},
		{Name: "worker", Variant: Plain, Points: 2, Violations: []string{"lost quorum"}},
		{Name: "removal", Variant: Stale, Points: 1},
	}
	if diff := cmp.Diff(Report{Looks: 5, Jobs: want}, r); diff != "" || r.Points() != 10 {
		t.Errorf("%d points, -want, +got:\n%s", r.Points(), diff)
	}
	if diff := cmp.Diff([]string{"worker, plain: lost quorum"}, r.Violations()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestShares holds that labs sweep each write once between them, each on machines of its own.
func TestShares(t *testing.T) {
	for _, o := range []Options{{}, {Labs: 3}, {Labs: 4, Every: 2, Offset: 5}} {
		o.Subnet = netip.MustParsePrefix("127.10.9.0/24")
		swept, subnets := map[int]int{}, map[netip.Prefix]bool{}
		for _, share := range o.shares() {
			subnets[share.Subnet] = true
			for k := share.Offset; k <= 50; k += share.Every {
				swept[k]++
			}
		}
		for k := 1; k <= 50; k++ {
			want := 0
			if from := max(o.Offset, 1); k >= from && (k-from)%max(o.Every, 1) == 0 {
				want = 1
			}
			if swept[k] != want {
				t.Errorf("%d labs, every %d. from %d on: write %d is swept %d times, want %d", o.Labs, o.Every, o.Offset, k, swept[k], want)
			}
		}
		if len(subnets) != max(o.Labs, 1) {
			t.Errorf("%d labs in %v", o.Labs, subnets)
		}
	}
}

// TestUnknown is told before anything is started.
func TestUnknown(t *testing.T) {
	for want, o := range map[string]Options{
		`"nap"`:      {Jobs: []string{"nap"}, Variants: []string{Plain}},
		`"sideways"`: {Jobs: []string{"removal"}, Variants: []string{"sideways"}},
		"no variant": {Jobs: []string{"removal"}},
	} {
		if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run: %v, want %q", err, want)
		}
	}
}

// TestPast shows caches what was there before the last write until the time is over, and everybody else what is.
func TestPast(t *testing.T) {
	s := &server{}
	p := &past{}
	h := p.before(s)
	ask := func(query string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/list?"+query, http.NoBody))
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.Code != http.StatusOK || len(s.seen) == 0 {
			return w.Code, ""
		}
		return w.Code, s.seen[len(s.seen)-1]
	}
	for _, body := range []string{`{"metadata":{"resourceVersion":"41"}}`, `{"kind":"Status","metadata":{}}`} {
		if err := p.wrote(&http.Response{Body: io.NopCloser(strings.NewReader(body))}); err != nil {
			t.Fatal(err)
		}
	}
	const present, old = "GET /list?resourceVersion=0", "GET /list?resourceVersion=40&resourceVersionMatch=Exact"
	if _, got := ask("resourceVersion=0"); got != present {
		t.Errorf("before: %q", got)
	}
	p.show(time.Hour)
	if _, got := ask("resourceVersion=0"); got != old || p.answered() != 1 {
		t.Errorf("in the past: %q, %d answered", got, p.answered())
	}
	if _, got := ask("limit=500"); got != "GET /list?limit=500" {
		t.Errorf("somebody who wants to be sure: %q", got)
	}
	if code, _ := ask("sendInitialEvents=true&watch=true"); code != http.StatusUnprocessableEntity {
		t.Errorf("a stream from the present: status %d", code)
	}
	p.show(20 * time.Millisecond) // A watch is answered when it is over.
	if _, got := ask("watch=true&resourceVersion=40"); got != "GET /list?watch=true&resourceVersion=40" {
		t.Errorf("a watch: %q", got)
	}
	if _, got := ask("resourceVersion=0"); got != present || p.answered() != 0 {
		t.Errorf("after: %q, %d answered", got, p.answered())
	}
}
