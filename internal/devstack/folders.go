package devstack

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// owner is the user that a private server runs as, and that its files belong to.
type owner struct {
	name       string
	credential *syscall.Credential // nil: we run it as ourselves
}

// serverOwner is ourselves, or for root, whom Postgres refuses, an unprivileged user of the system.
func serverOwner() (owner, error) {
	if os.Geteuid() != 0 {
		return owner{name: "this user"}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return owner{name: name, credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
		}
	}
	return owner{}, errors.New("postgres does not run as root, and there is neither a user postgres nor nobody " +
		"to run it as: start as a normal user")
}

// take gives a file to the owner.
func (o owner) take(path string) error {
	if o.credential == nil {
		return nil
	}
	if err := os.Chown(path, int(o.credential.Uid), int(o.credential.Gid)); err != nil {
		return fmt.Errorf("give %s to user %s: %w", path, o.name, err)
	}
	return nil
}

// makeFolder makes a private folder of the owner, and checks that the owner can get there. A folder
// with other things in it is left alone: we would change whose it is.
func (o owner) makeFolder(dir string) error {
	if err := refuseForeign(dir); err != nil {
		return err
	}
	//nolint:gosec // Parents only; the folder itself is closed below.
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := o.take(dir); err != nil {
		return err
	}
	//nolint:gosec // A folder needs the execute bit.
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("close folder to others: %w", err)
	}
	return o.reaches(filepath.Dir(dir))
}

func refuseForeign(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look into data folder: %w", err)
	}
	ours := len(entries) == 0 || slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.Name() == filepath.Base(layout(dir).lock())
	})
	if !ours {
		return fmt.Errorf("data folder %s holds other things: use an empty or a new one", dir)
	}
	return nil
}

// reaches checks that the owner may enter a folder and all above it.
func (o owner) reaches(dir string) error {
	if o.credential == nil {
		return nil
	}
	for {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("look at folder: %w", err)
		}
		if !o.mayEnter(info) {
			return fmt.Errorf("user %s, which runs postgres for root, cannot enter %s (mode %s): use a data folder outside it",
				o.name, dir, info.Mode().Perm())
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil
		}
		dir = parent
	}
}

func (o owner) mayEnter(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return true
	case stat.Uid == o.credential.Uid:
		return info.Mode()&0o100 != 0
	case stat.Gid == o.credential.Gid:
		return info.Mode()&0o010 != 0
	default:
		return info.Mode()&0o001 != 0
	}
}

// cacheFolder is where fetched programs stay: for root outside its home, which others cannot enter.
func cacheFolder() (string, error) {
	dir := "/var/cache/settleonce"
	if os.Geteuid() != 0 {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find cache folder: %w", err)
		}
		dir = filepath.Join(base, "settleonce")
	}
	//nolint:gosec // The server's unprivileged user has to enter it.
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make cache folder: %w", err)
	}
	return dir, nil
}

// TempDir makes a temporary folder whose children a server's unprivileged user can reach, which one of
// os.MkdirTemp is not. The caller removes it.
func TempDir(pattern string) (string, error) {
	dir, err := os.MkdirTemp("", pattern)
	if err != nil {
		return "", fmt.Errorf("make temporary folder: %w", err)
	}
	//nolint:gosec // Entered by the server's user; the folders below are private.
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", errors.Join(fmt.Errorf("open temporary folder: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}
