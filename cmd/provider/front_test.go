package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// A front stands between the provider and the management cluster. It notes what the provider lists and watches, holds that up
// until it is told to let it through, and answers writes with conflicts.
type front struct {
	to   http.Handler
	open chan struct{}

	mu sync.Mutex
	// listed are the lists and watches so far.
	listed []listing
	// conflicts is how many more writes of an object are answered with one, by path.
	conflicts map[string]int
}

// A listing is one list or watch.
type listing struct {
	group, resource, selector string
	// metadata is true if nothing but the metadata of objects is asked for.
	metadata bool
}

// standInFront begins to serve, and returns how the provider is to reach the management cluster.
func standInFront(t *testing.T, to *rest.Config) (*front, string) {
	t.Helper()
	at, err := url.Parse(to.Host)
	if err != nil {
		t.Fatalf("cannot read the address of the API server: %v", err)
	}
	transport, err := rest.TransportFor(to)
	if err != nil {
		t.Fatalf("cannot reach the API server: %v", err)
	}
	f := &front{open: make(chan struct{}), conflicts: map[string]int{}, to: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(at) },
		Transport:     transport,
		FlushInterval: -1,                         // Watches.
		ErrorLog:      log.New(io.Discard, "", 0), // A provider that ends breaks connections.
	}}
	s := httptest.NewServer(f)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return f, s.URL
}

// letThrough what was held up.
func (f *front) letThrough() { close(f.open) }

// conflict answers the next writes of an object with conflicts, as if somebody else were always faster.
func (f *front) conflict(resource, name string, times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conflicts[fmt.Sprintf("/apis/%s/v1alpha1/namespaces/default/%s/%s", v1alpha1.Group, resource, name)] = times
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l, ok := listingOf(r); ok {
		f.mu.Lock()
		f.listed = append(f.listed, l)
		f.mu.Unlock()
		select {
		case <-f.open:
		case <-r.Context().Done():
			return
		}
	}
	if f.meetsConflict(r) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(metav1.Status{ // Who has gone does not want it.
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Reason: metav1.StatusReasonConflict, Code: http.StatusConflict,
		})
		return
	}
	f.to.ServeHTTP(w, r)
}

func (f *front) meetsConflict(r *http.Request) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Method == http.MethodGet || f.conflicts[r.URL.Path] == 0 {
		return false
	}
	f.conflicts[r.URL.Path]--
	return true
}

// listingOf tells what a request lists or watches, if it does.
func listingOf(r *http.Request) (listing, bool) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	l := listing{selector: r.URL.Query().Get("labelSelector"), metadata: strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")}
	switch {
	case r.Method != http.MethodGet || len(parts) < 3:
		return l, false
	case parts[0] == "apis":
		l.group, parts = parts[1], parts[3:]
	default:
		parts = parts[2:]
	}
	if len(parts) == 3 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) != 1 {
		return l, false
	}
	l.resource = parts[0]
	return l, true
}

// watchesLittle holds that of what is not the provider's own it reads no more than what belongs to a cluster, and of Secrets
// no data. A management cluster has the Secrets of everybody, and a Lease for each of its nodes that changes every ten seconds.
func (f *front) watchesLittle(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var seen []string
	for _, l := range f.listed {
		seen = append(seen, l.resource)
		switch {
		case l.group == v1alpha1.Group || l.resource == "customresourcedefinitions":
		case l.selector != v1alpha1.LabelCluster:
			t.Errorf("all %s of the management cluster are read (with label %q)", l.resource, l.selector)
		case l.resource == "secrets" && !l.metadata:
			t.Errorf("the data of Secrets is read into memory")
		case l.resource != "secrets" && l.resource != "leases":
			t.Errorf("%s are watched", l.resource)
		}
	}
	for _, what := range []string{"secrets", "leases", "customresourcedefinitions", "talosclusters"} {
		if !slices.Contains(seen, what) {
			t.Errorf("%s were not seen to be watched: %q", what, seen)
		}
	}
}
