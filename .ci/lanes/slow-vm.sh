#!/usr/bin/env bash
# The sandbox on another kernel, in an emulator: Debian's Linux 6.1 with nothing
# but control groups of version 2, Landlock 2, no other programs than busybox, as
# root and as an ordinary user. In software, so that it runs anywhere; the tests
# are those of package sandbox that need no other program. Some minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
need=()
command -v qemu-system-x86_64 >/dev/null || need+=(qemu-system-x86)
command -v busybox >/dev/null || need+=(busybox-static)
command -v cpio >/dev/null || need+=(cpio)
apt_update() { [ -n "${updated:-}" ] || { apt-get update -qq; updated=1; }; }
if [ ${#need[@]} -gt 0 ]; then
  apt_update
  DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kernel=${KERNEL:-} # a vmlinuz; by default Debian's
if [ -z "$kernel" ]; then
  apt_update
  package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1)
  (cd "$work" && timeout 300 apt-get download -qq "$package" 2>/dev/null && dpkg -x linux-image-*.deb kernel)
  kernel=$(find "$work/kernel/boot" -name 'vmlinuz-*' | head -n 1)
fi

tree=$work/tree
mkdir -p "$tree"/{bin,dev,proc,sys,tmp,etc,root,srv/user,var/lib,var/tmp,run,usr/bin,src}
cp "$(command -v busybox)" "$tree/bin/busybox"
CGO_ENABLED=0 go test -c -o "$tree/src/sandbox.test" ./sandbox
printf 'root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/srv/user:/bin/sh\n' > "$tree/etc/passwd"
tests=${TESTS:-'^Test(Probe|LimitsOfHelpers|GroupsAreRemoved|MemoryLimitEndsTheWholeCommand|WorkspaceWrite|ReadOnly|DeniedPaths|DeniedPathsAreReplaced|DeniedSettingsAreBlank|Overlay.*|LandlockVersions|BadSpecs|FileSizeLimit|SpecsMeanWhatTheySay|Kill|SignalReachesTheTree|BackgroundChildHoldsNothing|PlaceholdersAreShared|RunnerDies|FullAccessTreesDie|Cancel)$'}
cat > "$tree/init" <<INIT
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
# pivot_root does not work on the initial ramdisk.
if [ "\$1" != again ]; then
  mkdir /new && mount -t tmpfs -o mode=755 tmpfs /new && cp -a /bin /dev /etc /srv /init /root /run /src /tmp /usr /var /new/ && mkdir /new/proc /new/sys
  exec switch_root /new /init again
fi
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs devtmpfs /dev; mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/pts /dev/shm; mount -t devpts devpts /dev/pts; mount -t tmpfs tmpfs /dev/shm; mount -t securityfs s /sys/kernel/security
chmod 1777 /tmp /var/tmp /dev/shm; chown 1000:1000 /srv/user; ip link set lo up
mkdir /sys/fs/cgroup/job; echo \$\$ > /sys/fs/cgroup/job/cgroup.procs; echo '+memory +pids +cpu' > /sys/fs/cgroup/cgroup.subtree_control
echo "kernel \$(uname -r), lsm \$(cat /sys/kernel/security/lsm 2>/dev/null)"
cd /src
HOME=/root NIGHTSHIFT_CI=1 NIGHTSHIFT_CGROUP='cgroup v2' ./sandbox.test -test.v -test.timeout 20m -test.run '$tests'; echo "AS-ROOT \$?"
su user -c "cd /src && HOME=/srv/user NIGHTSHIFT_CI=1 ./sandbox.test -test.v -test.timeout 20m -test.run '$tests'"; echo "AS-USER \$?"
poweroff -f
INIT
chmod 755 "$tree/init"
(cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1 > "$work/initrd.gz")
timeout "${BOUND:-1800}" qemu-system-x86_64 -accel tcg -cpu max -smp 2 -m 3000 -nographic -no-reboot -kernel "$kernel" -initrd "$work/initrd.gz" \
  -append 'console=ttyS0 quiet panic=-1 systemd.unified_cgroup_hierarchy=1' < /dev/null | tr -d '\r' | tee "$work/log" | grep -aE '^(---|===? FAIL|    ---|FAIL|PASS|kernel|AS-|panic|\s+[a-z_]+_test.go)' || true
grep -q '^AS-ROOT 0' "$work/log" && grep -q '^AS-USER 0' "$work/log" || { tail -n 40 "$work/log" >&2; exit 1; }
