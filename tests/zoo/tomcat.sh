#!/bin/bash
# Tomcat by its two connectors, NIO and NIO2: files down, whole and in parts, up, many requests on
# one connection, wrk; a page that a JSP makes.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
HOME_OF=/usr/share/tomcat10
[[ -e $HOME_OF/bin/bootstrap.jar ]] && command -v java >/dev/null || skip "no tomcat10 or no java"
command -v curl >/dev/null && command -v wrk >/dev/null || skip "no curl or no wrk"
base=$TMP/tomcat
mkdir -p "$base"/{conf,logs,temp,work,webapps/ROOT/WEB-INF}
make_file "$base/webapps/ROOT/1k" 1024
make_file "$base/webapps/ROOT/32m" 33554432
cat >"$base/webapps/ROOT/page.jsp" <<'END'
<%@page contentType="text/plain"%>
<% for (int i = 0; i < 100000; i++) out.println(i + " " + i * 7919); %>
END
cp /etc/tomcat10/web.xml "$base/conf/web.xml" 2>/dev/null ||
	cp "$HOME_OF/etc/web.xml" "$base/conf/web.xml" || skip "no web.xml of Tomcat's"
cat >"$base/webapps/ROOT/WEB-INF/web.xml" <<'END'
<web-app>
  <servlet>
    <servlet-name>files</servlet-name>
    <servlet-class>org.apache.catalina.servlets.DefaultServlet</servlet-class>
    <init-param><param-name>readonly</param-name><param-value>false</param-value></init-param>
  </servlet>
  <servlet-mapping><servlet-name>files</servlet-name><url-pattern>/</url-pattern></servlet-mapping>
</web-app>
END

get() { client curl -sS --max-time 30 "$@"; }

ask() {
	local u=http://127.0.0.1:$1 i
	for i in 1 2; do get "$u/32m" | sha256sum; done
	web "$u" "$base/webapps/ROOT/32m" "up$2" "$base/webapps/ROOT/up$2"
	get "$u/page.jsp" | sha256sum
	get -H 'Transfer-Encoding: chunked' -T "$base/webapps/ROOT/1k" -o /dev/null \
		-w '%{http_code}\n' "$u/up$2"
	rm -f "$base/webapps/ROOT/up$2"
}

job() {
	local nio nio2 p
	free_port nio
	free_port nio2
	cat >"$base/conf/server.xml" <<-END
		<Server port="-1"><Service name="Catalina">
		<Connector port="$nio" address="127.0.0.1" maxKeepAliveRequests="-1"
			protocol="org.apache.coyote.http11.Http11NioProtocol"/>
		<Connector port="$nio2" address="127.0.0.1" maxKeepAliveRequests="-1"
			protocol="org.apache.coyote.http11.Http11Nio2Protocol"/>
		<Engine name="Catalina" defaultHost="localhost">
			<Host name="localhost" appBase="webapps"/></Engine>
		</Service></Server>
	END
	server java -XX:-UsePerfData -Xmx256m -Djava.io.tmpdir="$base/temp" \
		-Dcatalina.home="$HOME_OF" -Dcatalina.base="$base" \
		-cp "$HOME_OF/bin/bootstrap.jar:$HOME_OF/bin/tomcat-juli.jar" \
		org.apache.catalina.startup.Bootstrap start
	wait_port "$nio" 30
	wait_port "$nio2" 10
	ask "$nio" 1 >>"$OUT" 2>&1
	ask "$nio2" 2 >>"$OUT" 2>&1
	for p in "$nio" "$nio2"; do
		client wrk -t 1 -c 30 -d 2 "http://127.0.0.1:$p/1k" >"$TMP/wrk.log" 2>&1 ||
			fail "wrk: $(cat "$TMP/wrk.log")"
		grep -e 'Socket errors' -e 'Non-2xx' "$TMP/wrk.log" && fail "wrk saw errors"
	done
	stop "$SRV"
	grep -hE 'SEVERE|fatal error has been detected' "$TMP/server.log" && fail "Tomcat says so"
	true
}
zoo job "$(dpkg-query -W -f '${Version}' tomcat10 2>/dev/null | sed 's/-.*//')" \
	"NIO and NIO2: files down and up, a JSP, wrk"
