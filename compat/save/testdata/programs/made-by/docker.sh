# Records the rules of dockerd on the host and in a container. Needs dockerd and ./sleeper, a static
# program that sleeps. On a machine without CAP_SYS_RESOURCE, also needs ./runc/runc, which omits
# this capability.
variant=legacy
. ./node.sh
echo 1 > /proc/sys/net/ipv4/ip_forward
export DOCKER_HOST=unix://$PWD/docker.sock PATH=$PWD/runc:$PATH
dockerd --data-root "$PWD/docker" --exec-root "$PWD/exec" -H "$DOCKER_HOST" --pidfile "$PWD/docker.pid" --iptables=true \
	--storage-driver vfs --exec-opt native.cgroupdriver=cgroupfs 2> docker.log &
daemon=$!
until docker info > /dev/null 2>&1; do sleep 0.2; done
tar -c sleeper | docker import -c 'CMD ["/sleeper"]' - sleeper:1
docker network create --subnet 172.20.0.0/16 back
docker network create --internal --subnet 172.21.0.0/16 inner
docker run -d --name web -p 8080:80 -p 127.0.0.1:8443:443 -p 5353:53/udp sleeper:1
docker run -d --name api --network back -p 192.168.7.2:9000-9001:9000-9001 sleeper:1
iptables-save > docker-v4.save
nsenter -t "$(docker inspect -f '{{.State.Pid}}' api)" -n iptables-save > docker-container-v4.save
docker rm -f web api
kill "$daemon"
wait || true
