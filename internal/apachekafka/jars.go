package apachekafka

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/folderlock"
)

// Version is the release of Apache Kafka that runs; pom.xml names it too.
const Version = "4.3.1"

const (
	oldestJava = 17
	// copyJars is pinned, as the jars are: what Maven takes by default differs from one to the next.
	copyJars = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
)

//go:embed pom.xml
var pom []byte

var javaVersion = regexp.MustCompile(`version "(\d+)`)

// Available tells whether a node can run here, and in half a sentence why not: it takes Java 17 or
// newer and, unless the jars are cached already, Maven.
func Available(ctx context.Context) (ok bool, reason string) {
	if _, err := findJava(ctx); err != nil {
		return false, err.Error()
	}
	lib, err := jarFolder()
	if err != nil {
		return false, err.Error()
	}
	if isFolder(lib) {
		return true, ""
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return false, "no Maven found to fetch its jars (mvn on PATH)"
	}
	return true, ""
}

// findJava returns the java of JAVA_HOME, else of PATH, if it is new enough.
func findJava(ctx context.Context) (string, error) {
	name := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		name = filepath.Join(home, "bin", "java")
	}
	java, err := exec.LookPath(name)
	if err != nil {
		return "", errors.New("no Java found (java on PATH or below JAVA_HOME)")
	}
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", java, err)
	}
	match := javaVersion.FindSubmatch(out)
	if match == nil {
		return "", fmt.Errorf("unreadable answer of %s -version", java)
	}
	if version, err := strconv.Atoi(string(match[1])); err != nil || version < oldestJava {
		return "", fmt.Errorf("java %s is too old, it takes %d or newer", match[1], oldestJava)
	}
	return java, nil
}

// jarFolder is where the jars are cached: in the user's cache folder, outside the repository.
func jarFolder() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w", err)
	}
	return filepath.Join(base, "settleonce", "kafka-"+Version), nil
}

// ClassPath returns the class path of Apache Kafka's own jars, its Java client among
// them. It is there once a cluster was started on this machine.
func ClassPath() (string, error) {
	lib, err := jarFolder()
	return filepath.Join(lib, "*"), err
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// fetchJars returns the folder with the jars, filled at the first call on a machine. Processes that
// ask at the same time wait for the one that fetches.
func fetchJars(ctx context.Context, log zerolog.Logger) (string, error) {
	lib, err := jarFolder()
	if err != nil || isFolder(lib) {
		return lib, err
	}
	if err := os.MkdirAll(filepath.Dir(lib), 0o700); err != nil {
		return "", fmt.Errorf("make cache folder: %w", err)
	}
	lock, err := folderlock.Wait(ctx, lib+".lock")
	if err != nil {
		return "", fmt.Errorf("wait for the jars of Apache Kafka: %w", err)
	}
	defer func() { _ = lock.Release() }()
	if isFolder(lib) {
		return lib, nil
	}
	log.Info().Str("folder", lib).Msg("fetching Apache Kafka " + Version + " with Maven (54 MB, once)")
	return lib, runMaven(ctx, lib)
}

// runMaven fills a folder beside lib and renames it, so that a killed fetch leaves nothing that looks
// finished.
func runMaven(ctx context.Context, lib string) error {
	work, err := os.MkdirTemp(filepath.Dir(lib), filepath.Base(lib)+".new-")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), pom, 0o600); err != nil {
		return fmt.Errorf("write pom: %w", err)
	}
	fresh := filepath.Join(work, "lib")
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", copyJars, "-DincludeScope=runtime", "-DoutputDirectory="+fresh)
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch Apache Kafka %s with Maven: %w\n%s", Version, err, strings.TrimSpace(string(out)))
	}
	if err := os.Rename(fresh, lib); err != nil {
		return fmt.Errorf("put jars in place: %w", err)
	}
	return nil
}
