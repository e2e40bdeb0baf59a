package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// serveVariable makes the test binary serve as the function does.
const serveVariable = "ICHOR_TEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestParse(t *testing.T) {
	t.Setenv("TLS_SERVER_CERTS_DIR", "/tls/server")
	got, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := flags{network: "tcp", address: ":9443", tlsCertsDir: "/tls/server", metricsAddress: ":8080", maxRecvMessageSize: 32}
	if diff := cmp.Diff(want, *got, cmp.AllowUnexported(flags{})); diff != "" {
		t.Errorf("as Crossplane starts it: -want, +got:\n%s", diff)
	}
	got, err = parse([]string{"--insecure", "--debug", "--address=127.0.0.1:1", "--tls-certs-dir=", "--metrics-address=", "--max-recv-message-size=4"})
	if err != nil {
		t.Fatal(err)
	}
	want = flags{debug: true, insecure: true, network: "tcp", address: "127.0.0.1:1", maxRecvMessageSize: 4}
	if diff := cmp.Diff(want, *got, cmp.AllowUnexported(flags{})); diff != "" {
		t.Errorf("as it is started by hand: -want, +got:\n%s", diff)
	}
	if err := run([]string{"--tls-certs-dir=", "--address=127.0.0.1:0", "--metrics-address="}); err == nil {
		t.Error("it serves without TLS although nobody said so")
	}
}

// TestServesCrossplaneOnly starts the program as Crossplane does, with certificates, and asks it with and without one.
func TestServesCrossplaneOnly(t *testing.T) {
	dir := t.TempDir()
	pair, pool := certificates(t, dir)
	address := freeAddress(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "--address="+address, "--metrics-address=")
	cmd.Env = append(os.Environ(), serveVariable+"=1", "TLS_SERVER_CERTS_DIR="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	rsp, err := ask(t, address, &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	if len(rsp.GetResults()) != 1 || rsp.GetResults()[0].GetSeverity() != fnv1.Severity_SEVERITY_FATAL {
		t.Errorf("an empty request was answered with %v", rsp)
	}
	if rsp, err := ask(t, address, &tls.Config{RootCAs: pool}); err == nil {
		t.Errorf("somebody without a certificate was answered with %v", rsp)
	}
}

// ask the function. The first time, it may not listen yet: that is waited for.
func ask(t *testing.T, address string, config *tls.Config) (*fnv1.RunFunctionResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// Whoever has no certificate is refused at once; whoever has one waits for the server.
	return fnv1.NewFunctionRunnerServiceClient(conn).RunFunction(ctx, &fnv1.RunFunctionRequest{}, grpc.WaitForReady(len(config.Certificates) > 0))
}

// certificates that are signed by themselves, good for server and client, in the files that Crossplane mounts.
func certificates(t *testing.T, dir string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
	for name, content := range map[string][]byte{"tls.crt": crt, "ca.crt": crt, "tls.key": secret} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(crt, secret)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(crt)
	return pair, pool
}

func freeAddress(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
