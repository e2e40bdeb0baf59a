package flux

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"path"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Repository stands in for Git and for Flux's source-controller: it serves what was committed last as Flux's controllers
// fetch it, and says in the status of a GitRepository where.
type Repository struct {
	kube   client.Client
	object *unstructured.Unstructured
	at     string // where it serves
	server *http.Server
	number int

	mu       sync.Mutex
	archives map[string][]byte // by URL path
}

// NewRepository makes an empty one with a GitRepository of this name in Namespace. It serves until Close.
func NewRepository(ctx context.Context, kube client.Client, name string) (*Repository, error) {
	r := &Repository{kube: kube, archives: map[string][]byte{}}
	r.object = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
		"metadata": map[string]any{"namespace": Namespace, "name": name},
	}}
	if err := kube.Create(ctx, r.object); err != nil {
		return nil, fmt.Errorf("cannot make a GitRepository: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot serve a repository: %w", err)
	}
	r.at = "http://" + l.Addr().String()
	r.server = &http.Server{Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: readTimeout}
	go func() { _ = r.server.Serve(l) }() // It ends with Close, and says so.
	return r, nil
}

// readTimeout is how long a request may take to come in.
const readTimeout = 10 * time.Second

// Close stops serving. The GitRepository stays.
func (r *Repository) Close() { _ = r.server.Close() } // Nobody needs what is cut off.

func (r *Repository) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	archive, there := r.archives[req.URL.Path]
	if !there {
		http.NotFound(w, req)
		return
	}
	_, _ = w.Write(archive) // A reader that has gone asks again.
}

// Commit the files, by path, in the place of all that were there before. It returns the revision.
func (r *Repository) Commit(ctx context.Context, files map[string]string) (string, error) {
	archive, err := pack(files)
	if err != nil {
		return "", err
	}
	r.number++
	at, revision := fmt.Sprintf("/%d.tar.gz", r.number), fmt.Sprintf("main@sha1:%040d", r.number)
	r.mu.Lock()
	r.archives[at] = archive
	r.mu.Unlock()
	now := time.Now().UTC().Format(time.RFC3339)
	r.object.Object["status"] = map[string]any{
		"artifact": map[string]any{
			"path": path.Base(at), "url": r.at + at, "revision": revision, "lastUpdateTime": now,
			"digest": fmt.Sprintf("sha256:%x", sha256.Sum256(archive)),
		},
		"conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored", "lastTransitionTime": now,
		}},
	}
	if err := r.kube.Status().Update(ctx, r.object); err != nil {
		return "", fmt.Errorf("cannot commit: %w", err)
	}
	return revision, nil
}

func pack(files map[string]string) ([]byte, error) {
	var buffer bytes.Buffer
	zipped := gzip.NewWriter(&buffer)
	archive := tar.NewWriter(zipped)
	for name, content := range files {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
			return nil, fmt.Errorf("cannot pack a commit: %w", err)
		}
		if _, err := archive.Write([]byte(content)); err != nil {
			return nil, fmt.Errorf("cannot pack a commit: %w", err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("cannot pack a commit: %w", err)
	}
	if err := zipped.Close(); err != nil {
		return nil, fmt.Errorf("cannot pack a commit: %w", err)
	}
	return buffer.Bytes(), nil
}
