package gitops

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A repository stands in for Git and for Flux's source-controller: it serves what was committed last as Flux's controllers
// fetch it, and says in the status of a GitRepository where.
type repository struct {
	t      *testing.T
	api    client.Client
	object *unstructured.Unstructured
	server *httptest.Server
	number int

	mu       sync.Mutex
	archives map[string][]byte // by URL path
}

func newRepository(t *testing.T, api client.Client, namespace, name string) *repository {
	t.Helper()
	r := &repository{t: t, api: api, archives: map[string][]byte{}}
	r.object = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
		"metadata": map[string]any{"namespace": namespace, "name": name},
	}}
	if err := api.Create(t.Context(), r.object); err != nil {
		t.Fatal(err)
	}
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		archive, there := r.archives[req.URL.Path]
		if !there {
			http.NotFound(w, req)
			return
		}
		_, _ = w.Write(archive) // A reader that has gone asks again.
	}))
	t.Cleanup(r.server.Close)
	return r
}

// commit the files, by path, in the place of all that were there before. It returns the revision.
func (r *repository) commit(files map[string]string) string {
	r.t.Helper()
	archive := r.archive(files)
	r.number++
	at, revision := fmt.Sprintf("/%d.tar.gz", r.number), fmt.Sprintf("main@sha1:%040d", r.number)
	r.mu.Lock()
	r.archives[at] = archive
	r.mu.Unlock()
	set(r.object, map[string]any{
		"path": path.Base(at), "url": r.server.URL + at, "revision": revision,
		"digest":         fmt.Sprintf("sha256:%x", sha256.Sum256(archive)),
		"lastUpdateTime": time.Now().UTC().Format(time.RFC3339),
	}, "status", "artifact")
	set(r.object, []any{map[string]any{
		"type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}}, "status", "conditions")
	if err := r.api.Status().Update(context.WithoutCancel(r.t.Context()), r.object); err != nil {
		r.t.Fatalf("cannot commit: %v", err)
	}
	return revision
}

func (r *repository) archive(files map[string]string) []byte {
	r.t.Helper()
	var buffer bytes.Buffer
	zipped := gzip.NewWriter(&buffer)
	archive := tar.NewWriter(zipped)
	for name, content := range files {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
			r.t.Fatal(err)
		}
		if _, err := archive.Write([]byte(content)); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		r.t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		r.t.Fatal(err)
	}
	return buffer.Bytes()
}
